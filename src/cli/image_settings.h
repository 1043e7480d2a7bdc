// The settings that an image file stores: under "redline" the options that repeat the image, and for other programs
// "parameters" (A1111's web UI) and "prompt" (ComfyUI).
#pragma once

#include "cli/image_args.h"
#include "cli/read_settings.h"
#include "media/rgb_image.h"
#include "redline/image.h"

namespace redline::cli {

/// One image of a run.
struct DrawnImage {
  const ImageArgs& args;
  const ImageRequest& request;  ///< the request as it was run
  const ImageResult& result;
  bool is_guidance_distilled = false;
  size_t index = 0;

  const std::string& prompt() const { return request.prompts[request.prompts.size() == 1 ? 0 : index]; }
  uint64_t seed() const { return request.seed + index; }
};

/// Returns the number of steps that were computed rather than forecast; with several images their mean.
double computed_steps(const ImageResult& result);

/// Returns the options of `redline image` that make this image. Absolute paths are shortened to the file's name.
Json settings_json(const DrawnImage& image);
ImageText image_text(const DrawnImage& image);

}  // namespace redline::cli
