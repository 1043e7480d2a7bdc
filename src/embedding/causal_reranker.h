// A causal reranker scores whether a document answers a query: Qwen3-Reranker (Zhang et al. 2025, arXiv:2506.05176).
#pragma once

#include <memory>
#include <string>

#include "models/registry.h"

namespace redline {

/// The head and the prompt of a causal reranker. Scores are computed from the hidden state after the last token of the
/// prompt.
struct CausalReranker {
  Graph head;                           ///< input "pooled" [sequences, width], output "scores" [sequences, num_scores]
  int64_t num_scores = 2;               ///< 2: the logits of "yes" and "no"; 1: their difference
  std::vector<int32_t> prefix, suffix;  ///< tokens around query and document
  /// Returns the text between `prefix` and `suffix`.
  static std::string text_of(std::string_view query, std::string_view document);
};

/// Returns true if the model at `path` is a causal reranker. Its config has "classifier_from_token" or the architecture
/// "Qwen3ForSequenceClassification", or its model card has the title "Qwen3-Reranker". The card is used because no
/// other file of such a folder distinguishes it from the base model; llama.cpp's converter reads it as well.
bool is_causal_reranker_folder(const std::string& path, const nlohmann::json& config);

/// Takes the output matrix, or the two rows of "yes" and "no", from the checkpoint. Call it before the model is built.
/// Returns null if the model is not a causal reranker.
/// invalid_argument: the tokenizer has no token "yes" or "no".
Result<std::unique_ptr<CausalReranker>> take_causal_reranker(Checkpoint& checkpoint);

}  // namespace redline
