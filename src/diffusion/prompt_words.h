// The words that a small model was trained on, from its redline.json: large models have no such list.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"

namespace redline {

struct PromptWords {
  std::vector<std::string> known;  ///< known words, in the singular and in lower case; empty: any text
  std::string draws;               ///< description of the images that the model generates: the words after "it draws"

  /// Reads {"known": ["circle", ...], "draws": "circles, ..."}. invalid_argument: JSON of another form.
  static Result<PromptWords> parse(const nlohmann::json& json);
  /// Returns the notice for prompts without any known word; "" if each prompt has one.
  std::string warning(std::span<const std::string> prompts) const;
};

}  // namespace redline
