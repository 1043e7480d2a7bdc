// The tokens of a text so far, and the repetition penalties computed from them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "graph/step.h"
#include "llm/word_filter.h"
#include "redline/text.h"

namespace redline {

class TokenHistory {
 public:
  /// Only what the options need is kept. `vocabulary`: the texts of tokens, for dry_sequence_breakers; may be null.
  TokenHistory(const SamplingOptions& options, int64_t vocab_size, std::shared_ptr<const TokenTrie> vocabulary);

  static bool has_penalties(const SamplingOptions& options);
  static bool has_dry(const SamplingOptions& options);

  void accept_prompt(int32_t token) { push(token, false); }
  void accept(int32_t token) { push(token, true); }

  /// The place of the logit of a token, or null if the token has been removed.
  using LogitOf = std::function<float*(int32_t token)>;
  /// Repetition, frequency and presence penalty.
  void penalize(const LogitOf& logit_of) const;
  /// The same as edits of the logits.
  void for_each_penalty(const std::function<void(const LogitEdit& edit)>& call) const;
  void apply_dry(const LogitOf& logit_of);

 private:
  void push(int32_t token, bool is_output);
  void find_repetitions();

  const SamplingOptions options_;
  const bool has_penalties_, has_dry_;
  std::vector<int32_t> tokens_;
  // Penalties.
  size_t prompt_tokens_ = 0, window_begin_ = 0;
  std::vector<uint32_t> counts_, output_counts_;  ///< [vocab_size] within the window
  std::vector<uint8_t> is_listed_;                ///< [vocab_size]
  std::vector<int32_t> listed_;                   ///< tokens that have ever been counted
  // Dry.
  std::shared_ptr<const TokenTrie> vocabulary_;  ///< null: nothing ends a repetition
  WordMatcher breakers_;
  std::vector<uint8_t> is_break_;                           ///< [tokens]
  std::vector<int32_t> matches_;                            ///< of find_repetitions
  std::vector<std::pair<int32_t, int64_t>> continuations_;  ///< token and length of the repetition that it continues
};

}  // namespace redline
