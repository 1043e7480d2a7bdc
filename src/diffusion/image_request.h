// Requests that are run over and over with one thing changed.
#pragma once

#include "redline/image.h"

namespace redline {

/// `r` with what it leaves open from `defaults`, and without a step cache: the run that others are measured against.
inline ImageRequest with_defaults(ImageRequest r, const ImageRequest& defaults) {
  if (r.width == 0) r.width = defaults.width;
  if (r.height == 0) r.height = defaults.height;
  if (r.steps == 0) r.steps = defaults.steps;
  if (r.guidance < 0) r.guidance = defaults.guidance;
  if (r.true_guidance < 0) r.true_guidance = defaults.true_guidance;
  if (r.max_sequence_length == 0) r.max_sequence_length = defaults.max_sequence_length;
  if (r.negative_prompt.empty()) r.negative_prompt = defaults.negative_prompt;
  r.cache = "none";
  r.quality = -1;
  r.steps_budget = 0;
  return r;
}

}  // namespace redline
