// Fills in the settings that a request leaves open.
#pragma once

#include "redline/image.h"

namespace redline {

/// Fills in steps and guidance that `r` leaves unset from `defaults`. The size is filled in only without an initial
/// image, because the engine takes it from that image.
inline void fill_open(ImageRequest& r, const ImageRequest& defaults) {
  if (r.width == 0 && !r.init_image) r.width = defaults.width;
  if (r.height == 0 && !r.init_image) r.height = defaults.height;
  if (r.num_frames == 0) r.num_frames = defaults.num_frames;
  if (r.num_inference_steps == 0) r.num_inference_steps = defaults.num_inference_steps;
  if (r.guidance_scale < 0) r.guidance_scale = defaults.guidance_scale;
  if (r.true_cfg_scale < 0) r.true_cfg_scale = defaults.true_cfg_scale;
  if (r.max_sequence_length == 0) r.max_sequence_length = defaults.max_sequence_length;
}

/// Returns `r` completed from `defaults` and without a step cache, for the reference run of comparisons.
inline ImageRequest with_defaults(ImageRequest r, const ImageRequest& defaults) {
  fill_open(r, defaults);
  if (r.negative_prompt.empty()) r.negative_prompt = defaults.negative_prompt;
  r.cache = "none";
  r.quality = -1;
  r.steps_budget = 0;
  return r;
}

}  // namespace redline
