// From logits to the next token: bias, the samplers of SamplingOptions in their order, and one counter-based random
// number.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "graph/step.h"
#include "llm/candidates.h"
#include "llm/logit_row.h"
#include "llm/token_history.h"
#include "llm/word_filter.h"
#include "redline/text.h"

namespace redline {

/// Philox4x32-10 (Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3"): 128 random bits
/// from a counter and a key, without state.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// A number in [0, 1) with 53 random bits that depends only on (seed, position, stream): the random number for the
/// token at `position` does not depend on earlier samples or on the number of threads.
double uniform_at(uint64_t seed, uint64_t position, uint32_t stream = 0);

/// Samples the tokens of one sequence. Not thread-safe.
///
/// Ties are resolved in favour of the lower id: greedy takes the lowest id among the best, and a truncation inside a
/// tie keeps the lower ids. The vocabulary is not sorted, and where the first truncation allows it, most of it is not
/// looked at (LogitRow). A sequence of positions has to be sampled in its order only with mirostat, whose state is
/// updated by sample().
class Sampler {
 public:
  /// `vocabulary`: the texts of tokens, if needs_texts(options); null if the model has no tokenizer.
  /// invalid_argument: an option outside its range (named, with the range), an unknown sampler, a token of logit_bias
  /// outside the vocabulary, or vocab_size < 1. not_found: bad_words without a vocabulary.
  /// `kernels`: null for those in use; they must outlive the sampler.
  static Result<Sampler> create(const SamplingOptions& options, int64_t vocab_size,
                                std::shared_ptr<const TokenTrie> vocabulary = nullptr,
                                const CpuKernels* kernels = nullptr);
  static bool needs_texts(const SamplingOptions& options);

  /// The text so far, of which penalties depend. Ids outside the vocabulary are ignored.
  void accept_prompt(std::span<const int32_t> tokens);
  void accept(std::span<const int32_t> tokens);
  void accept(int32_t token) { accept(std::span(&token, 1)); }

  /// Samples the token for `position` (0 is the first token of the sequence, prompt included). A logit of -inf excludes
  /// a token.
  /// internal: a logit is NaN or +inf (the message gives its index and the position), or all are -inf;
  /// invalid_argument: the number of logits is not the vocabulary size, or logit_bias and bad_words leave no token.
  Result<int32_t> sample(std::span<const float> logits, int64_t position);

  /// The same as sample() for a back end that samples; kHost: it has not all of what the options ask for.
  SampleRow device_row(int64_t position) const;

  /// Natural log probability of `token`, and in `top` the `count` most likely tokens, best first: from softmax(logits),
  /// before bias, samplers and temperature. A `count` above the vocabulary size gives the whole vocabulary. Same errors
  /// as sample(), and invalid_argument for a token outside the vocabulary.
  Result<float> logprobs(std::span<const float> logits, int32_t token, int64_t count, std::vector<TokenLogprob>& top);

 private:
  enum class Step : uint8_t;
  Sampler(const SamplingOptions& options, int64_t vocab_size, std::shared_ptr<const TokenTrie> vocabulary,
          const CpuKernels& kernels);
  static Result<std::vector<Step>> steps_of(const SamplingOptions& options);
  friend Result<std::vector<std::string>> active_samplers(const SamplingOptions& options);

  bool changes_logits() const;
  /// Bias, excluded words and the penalties that come first, on a copy of the logits. Returns the first step that is
  /// left.
  size_t change_logits(std::span<const float> logits);
  void penalize(Step step, const TokenHistory::LogitOf& logit_of);
  void apply(Step step, int64_t position);
  void apply_temperature();
  int32_t draw(double u);

  SamplingOptions options_;
  std::vector<Step> steps_;
  TokenHistory history_;
  std::optional<WordFilter> bad_words_;
  double mirostat_mu_;
  LogitRow row_;
  std::vector<float> changed_;  ///< [vocab_size] if changes_logits()
  Candidates candidates_;
};

}  // namespace redline
