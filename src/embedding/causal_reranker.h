// A causal reranker: scores whether a document answers a query: Qwen3-Reranker (Zhang et al. 2025, arXiv:2506.05176).
#pragma once

#include <memory>
#include <string>

#include "models/registry.h"

namespace redline {

/// Its scores are computed from the hidden state after the last token of a prompt.
struct CausalReranker {
  Graph head;                           ///< input "pooled" [sequences, width], output "scores" [sequences, num_scores]
  int64_t num_scores = 2;               ///< 2: the logits of "yes" and "no", 1: their difference
  std::vector<int32_t> prefix, suffix;  ///< tokens around query and document
  /// Between `prefix` and `suffix`.
  static std::string text_of(std::string_view query, std::string_view document);
};

/// Whether the model at `path` is one by its model card, whose title is "Qwen3-Reranker" (no other file of such a
/// folder tells it from the base model; llama.cpp's converter reads it too), or by its config: "classifier_from_token",
/// or an architecture "Qwen3ForSequenceClassification".
bool is_causal_reranker_folder(const std::string& path, const nlohmann::json& config);

/// Takes the output matrix, or the two rows of "yes" and "no", from the checkpoint; call it before the model is built.
/// Null: the model is not a causal reranker.
/// invalid_argument: the tokenizer has no token "yes" or "no".
Result<std::unique_ptr<CausalReranker>> take_causal_reranker(Checkpoint& checkpoint);

}  // namespace redline
