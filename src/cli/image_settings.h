// The settings of an image, as its file holds them: under "redline" the options that repeat it, and for other programs
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
  const ImageRequest& request;  ///< as it was run
  const ImageResult& result;
  bool is_guidance_distilled = false;
  size_t index = 0;

  const std::string& prompt() const { return request.prompts[request.prompts.size() == 1 ? 0 : index]; }
  uint64_t seed() const { return request.seed + index; }
};

/// Steps that were computed and not forecast; with several images their mean.
double computed_steps(const ImageResult& result);

/// The options of `redline image` that make this image. Absolute paths are shortened to the file's name.
Json settings_json(const DrawnImage& image);
ImageText image_text(const DrawnImage& image);

}  // namespace redline::cli
