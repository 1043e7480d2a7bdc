// Prompts and requests of commands that generate many images.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "redline/image.h"

namespace redline::cli {

/// Reads a JSON list of texts or of objects with "prompt", or one prompt per line (empty lines are skipped).
/// invalid_argument: no file given, no prompts in it, or other JSON.
Result<std::vector<std::string>> read_prompts(const std::string& path);

/// Flags for a list of prompts and for the request that generates each image.
struct DrawnPromptsArgs {
  std::string prompts, size;
  int64_t steps = 0, count = 0, seed = 0;
  std::optional<float> guidance, true_cfg_scale;
  std::optional<std::string> negative;

  void visit(OptionList& v) {
    v(prompts, "prompts", "FILE", "JSON list of prompts, or one prompt per line",
      {.names_file = true, .is_required = true});
    v(count, "count", "N", "only the first N prompts; 0: all", {.letter = 'n', .min = 0});
    v(size, "size", "WxH", "image size in pixels", {.shown_default = "the model's"});
    v(steps, "steps", "N", "steps of the uncached run",
      {.min = 0, .max = 1000, .shown_default = "the model's", .aliases = {"--num-inference-steps"}});
    v(guidance, "guidance", "G", "guidance scale",
      {.min = 0, .max = 100, .shown_default = "the model's", .aliases = {"--guidance-scale"}});
    v(true_cfg_scale, "true-cfg-scale", "G", "classifier-free guidance scale of a guidance-distilled model",
      {.min = 0, .max = 100, .shown_default = "the model's"});
    v(negative, "negative", "TEXT", "negative prompt",
      {.shown_default = "the model's", .aliases = {"--negative-prompt"}});
    v(seed, "seed", "S", "seed of the first prompt; the following use S + 1, S + 2, ..", {.min = 0});
  }

  /// Returns the first `count` prompts. Errors as read_prompts.
  Result<std::vector<std::string>> list() const;
  /// Returns the request from the flags; unset ones take the model's defaults. invalid_argument: a malformed size.
  Result<ImageRequest> request() const;
};

}  // namespace redline::cli
