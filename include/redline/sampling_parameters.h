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

struct SamplingParameter {
  using Member = std::variant<float SamplingOptions::*, int64_t SamplingOptions::*, int SamplingOptions::*>;
  struct Range {
    double min, max;
  };
  static constexpr double kMaxFloat = std::numeric_limits<float>::max();
  static constexpr double kMaxInteger = 9007199254740991;  ///< 2^53 - 1, exact in float64 and in JSON

  std::string_view name;  ///< of the member: "top_k"
  Member member;
  std::string_view symbol;   ///< what `help` calls the value: "K"
  std::string_view help;     ///< "sample from the K most likely tokens; 0 is off"
  std::string_view allowed;  ///< the range in words: "0 (off) or more"
  Range range;
  bool excludes_min = false;
  /// What flags and request fields take: values outside are mistakes. One below range.min reads as range.min ("-1 is
  /// off").
  Range input;
  std::span<const std::string_view> aliases = {};  ///< names in other programs: "repeat_penalty"
  std::string_view depends_on = {};                ///< the parameter without which this one has no effect, if any
  std::optional<double> neutral = {};              ///< with this value it has no effect
  bool is_of_model = false;                        ///< its default is the model's own
  bool is_common = false;                          ///< listed first
  // Set by sampling_parameters().
  std::string_view sampler = {};  ///< of default_samplers(), or "mirostat"
  bool affects_greedy = false;    ///< also where SamplingOptions::temperature is 0

  bool is_integer() const { return !std::holds_alternative<float SamplingOptions::*>(member); }
  double value(const SamplingOptions& options) const;
  /// `value` is rounded to the type of the member.
  void set(SamplingOptions& options, double value) const;
  bool is_neutral(const SamplingOptions& options) const { return neutral && value(options) == *neutral; }
  /// invalid_argument: the value is outside `range` (named, with `allowed`).
  Status check(const SamplingOptions& options) const;
};

/// In the default order of the samplers.
std::span<const SamplingParameter> sampling_parameters();
/// Null: unknown name.
const SamplingParameter* find_sampling_parameter(std::string_view name);

}  // namespace redline
