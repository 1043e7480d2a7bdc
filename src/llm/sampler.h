// Selects the next token from logits: bias, the samplers of SamplingOptions in their order, and one counter-based
// random number.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "graph/step.h"
#include "llm/philox.h"
#include "llm/sampler_registry.h"
#include "llm/word_filter.h"

namespace redline {

/// Samples the tokens of one sequence. Not thread-safe.
///
/// Ties are resolved in favour of the lower id: greedy takes the lowest id among the best, and a truncation inside a
/// tie keeps the lower ids. The vocabulary is not sorted, and if the first truncation allows it, most tokens are not
/// examined (LogitRow). Positions may be sampled in any order, except with mirostat or another sampler of kind
/// kFeedback, whose state sample() updates.
class Sampler {
 public:
  /// Makes a sampler. `vocabulary`: the texts of tokens, needed if needs_texts(options); null if the model has no
  /// tokenizer.
  /// invalid_argument: an option outside its range (named, with the range), an unknown sampler, a token of logit_bias
  /// outside the vocabulary, or vocab_size < 1. not_found: bad_words without a vocabulary.
  /// `kernels` must outlive the sampler; null: the kernels in use.
  static Result<Sampler> create(const SamplingOptions& options, int64_t vocab_size,
                                std::shared_ptr<const TokenTrie> vocabulary = nullptr,
                                const CpuKernels* kernels = nullptr);
  static bool needs_texts(const SamplingOptions& options);

  /// Append tokens to the history, which penalties depend on. Ids outside the vocabulary are ignored.
  void accept_prompt(std::span<const int32_t> tokens);
  void accept(std::span<const int32_t> tokens);
  void accept(int32_t token) { accept(std::span(&token, 1)); }

  /// The state of everything that remembers tokens: history, excluded words, samplers of kind kFeedback.
  struct Checkpoint {
    TokenHistory::Checkpoint history;
    std::string word_tail;
    std::vector<double> steps;
  };
  Checkpoint checkpoint() const;
  /// Returns to the state of `checkpoint`, after which only accept() and sample() were called.
  void roll_back(const Checkpoint& checkpoint);

  /// Samples the token for `position` (0 is the first token of the sequence, prompt included). A logit of -inf excludes
  /// a token.
  /// internal: a logit is NaN or +inf (the message gives its index and the position), or all are -inf;
  /// invalid_argument: the number of logits is not the vocabulary size, or logit_bias and bad_words leave no token.
  Result<int32_t> sample(std::span<const float> logits, int64_t position);

  /// Returns the parameters with which a back end samples like sample(); kHost if it lacks a sampler or an edit of
  /// these options.
  SampleRow device_row(int64_t position) const;

  /// Returns the natural log probability of `token`, and in `top` the `count` most likely tokens, best first. Both are
  /// those of softmax(logits), before bias, samplers and temperature. A `count` above the vocabulary size gives the
  /// whole vocabulary. Errors: those of sample(), and invalid_argument for a token outside the vocabulary.
  Result<float> logprobs(std::span<const float> logits, int32_t token, int64_t count, std::vector<TokenLogprob>& top);

 private:
  Sampler(const SamplingOptions& options, int64_t vocab_size, std::shared_ptr<const TokenTrie> vocabulary,
          const CpuKernels& kernels, std::span<const SamplerRow* const> samplers);

  /// Copies the logits to changed_ and applies bias, excluded words and the penalties that come first.
  void change_logits(std::span<const float> logits);

  SamplingOptions options_;
  std::unique_ptr<TokenHistory> history_;  ///< the steps_ of penalties refer to it
  std::vector<std::unique_ptr<SamplerStep>> steps_;
  size_t first_penalties_ = 0;  ///< number of penalties at the beginning of steps_
  std::optional<WordFilter> bad_words_;
  LogitRow row_;
  std::vector<float> changed_;  ///< [vocab_size] if logits are changed before there are candidates; else empty
  Candidates candidates_;
};

}  // namespace redline
