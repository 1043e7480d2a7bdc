// The list of all samplers, and the selection of those that options activate.
#pragma once

#include <span>
#include <vector>

#include "base/error.h"
#include "llm/samplers/sampler_row.h"

namespace redline {

/// Returns true if the most likely token is chosen, without a random number.
inline bool is_greedy(const SamplingOptions& options) {
  return options.temperature == 0 && options.dynatemp_range == 0;
}

/// Returns the samplers that have an effect, in their order. invalid_argument: an option outside its range (named, with
/// the range), or a list of samplers with an unknown or repeated name.
Result<std::vector<const SamplerRow*>> active_sampler_rows(const SamplingOptions& options);

}  // namespace redline
