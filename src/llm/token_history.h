// The tokens of a text so far, and the repetition penalties computed from them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/step.h"
#include "llm/word_filter.h"
#include "redline/text.h"

namespace redline {

class TokenHistory {
 public:
  /// Keeps only the data that the options need. `vocabulary`: the texts of tokens, for dry_sequence_breakers; may be
  /// null.
  TokenHistory(const SamplingOptions& options, int64_t vocab_size, std::shared_ptr<const TokenTrie> vocabulary);

  static bool has_penalties(const SamplingOptions& options);
  static bool has_dry(const SamplingOptions& options);

  void accept_prompt(int32_t token) { push(token, false); }
  void accept(int32_t token) { push(token, true); }

  /// The present text, for roll_back().
  struct Checkpoint {
    size_t tokens = 0;
    std::string breaker_tail;
  };
  Checkpoint checkpoint() const { return {tokens_.size(), std::string(breakers_.tail())}; }
  /// Drops the tokens accepted since `checkpoint`, which must be outputs. It must be of a text that the present one
  /// continues.
  void roll_back(const Checkpoint& checkpoint);

  /// Returns the address of a token's logit, or null if the token has been removed.
  using LogitOf = std::function<float*(int32_t token)>;
  /// Applies the repetition, frequency and presence penalties.
  void penalize(const LogitOf& logit_of) const;
  /// Calls `call` with the edits of logits that penalize() makes.
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
  /// [vocab_size]: occurrences in the window of penalty_last_n, in all tokens and in the output
  std::vector<uint32_t> counts_, output_counts_;
  std::vector<uint8_t> is_listed_;  ///< [vocab_size]
  std::vector<int32_t> listed_;     ///< tokens that have ever been counted
  // Dry.
  std::shared_ptr<const TokenTrie> vocabulary_;  ///< null: nothing ends a repetition
  WordMatcher breakers_;
  std::vector<uint8_t> is_break_;  ///< [tokens]
  std::vector<int32_t> matches_;   ///< buffer of find_repetitions()
  /// a token, and the length of the repetition that it would continue
  std::vector<std::pair<int32_t, int64_t>> continuations_;
};

}  // namespace redline
