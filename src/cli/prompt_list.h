// Shared by commands that generate many images: the prompts and the request for each of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "redline/image.h"

namespace redline::cli {

/// A JSON list of texts, or a list of objects with "prompt", or one prompt a line (empty lines left out).
/// invalid_argument: no file given, none in it, or JSON of another form.
Result<std::vector<std::string>> read_prompts(const std::string& path);

/// Flags for a list of prompts and the request that draws each of them.
struct DrawnPromptsArgs {
  std::string prompts, size;
  int64_t steps = 0, count = 0, seed = 0;
  std::optional<float> guidance, true_guidance;
  std::optional<std::string> negative;

  void visit(OptionList& v) {
    v(prompts, "prompts", "FILE", "JSON list of prompts, or one prompt per line", {.names_file = true});
    v(count, "count", "N", "only the first N prompts; 0: all", {.letter = 'n', .min = 0});
    v(size, "size", "WxH", "image size in pixels", {.shown_default = "the model's"});
    v(steps, "steps", "N", "steps of the uncached run", {.min = 0, .max = 1000, .shown_default = "the model's"});
    v(guidance, "guidance", "G", "guidance scale", {.min = 0, .max = 100, .shown_default = "the model's"});
    v(true_guidance, "true-guidance", "G", "classifier-free guidance scale of a guidance-distilled model",
      {.min = 0, .max = 100, .shown_default = "the model's"});
    v(negative, "negative", "TEXT", "negative prompt", {.shown_default = "the model's"});
    v(seed, "seed", "S", "seed of the first prompt; the following use S + 1, S + 2, ..", {.min = 0});
  }

  /// The first `count` prompts. Errors as read_prompts.
  Result<std::vector<std::string>> list() const;
  /// What the flags say; what they leave open is the model's. invalid_argument: a size of another form.
  Result<ImageRequest> request() const;
};

}  // namespace redline::cli
