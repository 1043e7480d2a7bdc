// The flags that say how tokens are sampled.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "redline/text.h"

namespace redline::cli {

struct SamplingArgs {
  std::optional<float> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<float> typical_p, top_n_sigma, xtc_probability, xtc_threshold, dry_multiplier, dry_base;
  std::optional<float> mirostat_tau, mirostat_eta, dynatemp_range, dynatemp_exponent;
  std::optional<int64_t> top_k, penalty_last_n, dry_allowed_length, dry_penalty_last_n, mirostat;
  std::optional<uint64_t> seed;
  std::optional<std::string> samplers;
  std::vector<std::string> dry_breakers, logit_bias, bad_words;

  void visit(OptionList& v);
  /// The values that were given, over the model's own. invalid_argument: a malformed bias, or an unknown sampler.
  Result<SamplingOptions> options(const SamplingOptions& defaults) const;
  /// Flags that were given and have no effect at temperature 0.
  std::vector<std::string> unused_by_greedy() const;
};

/// "penalties (repetition 1.1), temperature 0.8, top_k 40, draw": the samplers that have an effect, in their order.
std::string samplers_text(const SamplingOptions& options);

}  // namespace redline::cli
