// Fill-in-the-middle: prompts for the text between a prefix and a suffix, with the marker tokens of the model's family.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "redline/text.h"
#include "server/api_error.h"

namespace redline::server {

struct FillInRequest {
  std::string prefix, suffix;
  std::string begin;  ///< beginning of the text between prefix and suffix, which the answer continues
  std::vector<std::pair<std::string, std::string>> files;  ///< names and texts of other files of the project
};

struct FillInPrompt {
  std::vector<int32_t> tokens;
  std::vector<int32_t> stop_tokens;  ///< markers that end the text
};

/// Builds a fill-in-the-middle prompt (Bavarian et al. 2022, arXiv:2207.14255). The markers are those that the model's
/// file names (redline/fill_in.h), else those of a family by their names in the vocabulary: Qwen2.5-Coder, CodeGemma,
/// Granite, StarCoder 2, CodeLlama, DeepSeek-Coder, Codestral, Seed-Coder, GLM-4. Other files come first, each after a
/// file marker if there is one. `param`: the field that errors name. 400: there are no such markers.
Outcome<FillInPrompt> fill_in_prompt(const TextEngine& engine, const FillInRequest& request,
                                     const std::string& param = "");

}  // namespace redline::server
