// Log probabilities of the tokens of a prompt, for `echo` with `logprobs`.
#pragma once

#include <vector>

#include "redline/text.h"

namespace redline::server {

struct TokenScore {
  float logprob = 0;
  int64_t rank = 1;               ///< one more than the number of more likely tokens
  std::vector<TokenLogprob> top;  ///< the most likely tokens at this position, best first
};

/// Scores each token of the prompt but the first, which nothing predicts. Rows of embeddings have no score: their entry
/// is empty. Errors as TextEngine::new_sequence and
/// Sequence::append; cancelled: the client has disconnected.
Result<std::vector<TokenScore>> score_prompt(TextEngine& engine, const Prompt& prompt, const AdapterWeights& adapters,
                                             size_t num_top);

}  // namespace redline::server
