// What a request leaves open.
#pragma once

#include "redline/image.h"

namespace redline {

/// Sizes, steps and guidance that `r` leaves open, from `defaults`.
inline void fill_open(ImageRequest& r, const ImageRequest& defaults) {
  if (r.width == 0) r.width = defaults.width;
  if (r.height == 0) r.height = defaults.height;
  if (r.steps == 0) r.steps = defaults.steps;
  if (r.guidance < 0) r.guidance = defaults.guidance;
  if (r.true_guidance < 0) r.true_guidance = defaults.true_guidance;
  if (r.max_sequence_length == 0) r.max_sequence_length = defaults.max_sequence_length;
}

/// `r` with what it leaves open from `defaults`, and without a step cache: the run that others are measured against.
inline ImageRequest with_defaults(ImageRequest r, const ImageRequest& defaults) {
  fill_open(r, defaults);
  if (r.negative_prompt.empty()) r.negative_prompt = defaults.negative_prompt;
  r.cache = "none";
  r.quality = -1;
  r.steps_budget = 0;
  return r;
}

}  // namespace redline
