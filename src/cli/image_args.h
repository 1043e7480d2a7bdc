// The arguments of redline image.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/image_options.h"
#include "cli/json.h"
#include "cli/options.h"

namespace redline::cli {

struct ImageArgs {
  std::string model, from;
  std::optional<std::string> prompt;
  std::string output = "out.png", negative, size, solver, cache, init_noise, save_latents, save_steps, prompt_embeds,
              pooled_embeds, init_image, mask, keep_unmasked = "auto", resize = "stretch", show = "auto";
  std::optional<int64_t> steps, width, height, max_sequence_length, steps_budget;
  std::optional<float> guidance, true_cfg_scale, cfg_scale, quality, strength;
  std::optional<uint64_t> seed;
  std::string guidance_interval;
  std::vector<std::string> lora;
  int64_t batch = 1;
  bool split_guidance = false, quiet = false, verbose = false, json = false;
  ImageEngineArgs engine;
  std::set<std::string> given;  ///< names of the options and arguments that were given

  void visit(OptionList& v);
  /// Reads the options of `settings` (cli/image_settings.h) that were not given, so that the command repeats an image.
  /// invalid_argument: an unknown option, one that is not a property of an image (output), or a value that it does not
  /// accept.
  Status repeat(const Json& settings);
};

}  // namespace redline::cli
