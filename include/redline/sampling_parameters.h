// The numbers of SamplingOptions as a table: name, range and meaning of each. The flags of the command line and the
// request fields of the server are made from it.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "redline/text.h"

namespace redline {

/// Description of one numeric member of SamplingOptions.
struct SamplingParameter {
  using Member = std::variant<float SamplingOptions::*, int64_t SamplingOptions::*, int SamplingOptions::*>;
  struct Range {
    double min, max;
  };
  static constexpr double kMaxFloat = std::numeric_limits<float>::max();
  static constexpr double kMaxInteger = 9007199254740991;  ///< 2^53 - 1, exact in float64 and in JSON

  std::string_view name;  ///< name of the member: "top_k"
  Member member;
  std::string_view symbol;   ///< name of the value in `help`: "K"
  std::string_view help;     ///< "sample from the K most likely tokens; 0 is off"
  std::string_view allowed;  ///< the range in words: "0 (off) or more"
  Range range;
  bool excludes_min = false;
  /// Range that flags and request fields accept; other values are errors. An accepted value below range.min is read as
  /// range.min ("-1 is off").
  Range input;
  std::span<const std::string_view> aliases = {};  ///< names of the parameter in other programs: "repeat_penalty"
  std::string_view depends_on = {};                ///< the parameter without which this one has no effect, if any
  std::optional<double> neutral = {};              ///< value with which the parameter has no effect
  bool is_of_model = false;                        ///< the default comes from the model
  bool is_common = false;                          ///< often used: listed first
  // Set by sampling_parameters().
  /// name of the sampler that uses the parameter: one of default_samplers(), or "mirostat"
  std::string_view sampler = {};
  bool affects_greedy = false;  ///< has an effect even if SamplingOptions::temperature is 0

  bool is_integer() const { return !std::holds_alternative<float SamplingOptions::*>(member); }
  double value(const SamplingOptions& options) const;
  /// Sets the member to `value`, rounded to its type.
  void set(SamplingOptions& options, double value) const;
  bool is_neutral(const SamplingOptions& options) const { return neutral && value(options) == *neutral; }
  /// invalid_argument: the value is outside `range` (named, with `allowed`).
  Status check(const SamplingOptions& options) const;
};

/// Returns all parameters, in the default order of the samplers.
std::span<const SamplingParameter> sampling_parameters();
/// Returns the parameter with this name or alias; null if there is none.
const SamplingParameter* find_sampling_parameter(std::string_view name);

}  // namespace redline
