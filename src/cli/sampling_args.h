// The flags of sampling parameters.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "redline/sampling_parameters.h"

namespace redline::cli {

struct SamplingArgs {
  /// A given value of one of sampling_parameters(), in the type of the member.
  struct Given {
    std::optional<float> number;
    std::optional<int64_t> integer;
    bool has_value() const { return number || integer; }
  };
  std::vector<Given> parameters = std::vector<Given>(sampling_parameters().size());
  std::optional<uint64_t> seed;
  std::optional<std::string> samplers;
  std::vector<std::string> dry_breakers, logit_bias, bad_words;

  void visit(OptionList& v);
  /// Returns the model's options with the given values. invalid_argument: a malformed bias, or an unknown sampler.
  Result<SamplingOptions> options(const SamplingOptions& defaults) const;
  /// Returns the given flags that have no effect at temperature 0.
  std::vector<std::string> unused_by_greedy() const;
};

/// Returns "penalties (repetition_penalty 1.1), temperature 0.8, top_k 40, draw": the samplers that have an effect, in
/// their order, with their parameters.
std::string samplers_text(const SamplingOptions& options);

}  // namespace redline::cli
