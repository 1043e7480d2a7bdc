// Detects notation of other programs in prompts, which Redline takes literally.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace redline {

/// Returns one notice for each kind of notation that occurs in the prompts: weights "(red:1.3)", prompt editing
/// "[red:blue:0.5]", "BREAK", adapters "<lora:name:1>" and embeddings "embedding:name". Each quotes the first of its
/// kind.
std::vector<std::string> prompt_syntax_warnings(std::span<const std::string> prompts);

}  // namespace redline
