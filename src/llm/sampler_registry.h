// The samplers that there are, and those that options make use of.
#pragma once

#include <span>
#include <vector>

#include "base/error.h"
#include "llm/samplers/sampler_row.h"

namespace redline {

/// The most likely token is taken, and none is drawn.
inline bool is_greedy(const SamplingOptions& options) {
  return options.temperature == 0 && options.dynatemp_range == 0;
}

/// The samplers that have an effect, in their order. invalid_argument: an option outside its range (named, with the
/// range), or a list of samplers with an unknown or repeated name.
Result<std::vector<const SamplerRow*>> active_sampler_rows(const SamplingOptions& options);

}  // namespace redline
