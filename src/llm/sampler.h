// From logits to the next token: penalty, temperature, truncation and one counter-based random number.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "redline/text.h"

namespace redline {

/// Philox4x32-10 (Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3"): 128 random bits
/// from a counter and a key, without state.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// A number in [0, 1) with 53 random bits that depends only on (seed, position): the random number for the token at
/// `position` does not depend on earlier samples or on the number of threads.
double uniform_at(uint64_t seed, uint64_t position);

/// Samples the tokens of one sequence. Not thread-safe.
///
/// Order: repetition penalty, temperature, top-k, top-p, min-p, then one random number. Ties are resolved in favour of
/// the lower id: greedy takes the lowest id among the best, and a truncation inside a tie keeps the lower ids. The
/// vocabulary is not sorted: truncations find their threshold by selection, expected O(vocab_size).
/// create() allocates all memory; sampling does not allocate.
class Sampler {
 public:
  /// invalid_argument: an option outside its range (named, with the range), or vocab_size < 1.
  static Result<Sampler> create(const SamplingOptions& options, int64_t vocab_size);

  /// Adds tokens that the repetition penalty applies to from now on. Ids outside the vocabulary are ignored.
  void accept(std::span<const int32_t> tokens);
  void accept(int32_t token) { accept(std::span(&token, 1)); }

  /// Samples the token for `position` (0 is the first token of the sequence, prompt included). A logit of -inf excludes
  /// a token.
  /// internal: a logit is NaN or +inf (the message gives its index and the position), or all are -inf;
  /// invalid_argument: the number of logits is not the vocabulary size.
  Result<int32_t> sample(std::span<const float> logits, int64_t position);

  /// Natural log probability of `token`, and in `top` the `count` most likely tokens, best first: from softmax(logits),
  /// before penalty, temperature and truncation. A `count` above the vocabulary size gives the whole vocabulary. Same
  /// errors as sample(), and invalid_argument for a token outside the vocabulary.
  Result<float> logprobs(std::span<const float> logits, int32_t token, int64_t count, std::vector<TokenLogprob>& top);

 private:
  struct Candidate {
    float logit;
    int32_t id;
  };
  static bool likelier(const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  }
  struct Scan {
    float best = 0;
    int32_t best_id = 0;
  };
  Sampler(const SamplingOptions& options, int64_t vocab_size);
  Result<Scan> scan(std::span<const float> logits, int64_t position) const;
  /// The least likely token that passes top-k and top-p.
  Candidate threshold(std::span<const float> logits);

  SamplingOptions options_;
  std::vector<int32_t> seen_;     // distinct tokens of the sequence so far
  std::vector<uint8_t> is_seen_;  // [vocab_size]
  std::vector<float> penalized_;  // [vocab_size] if there is a penalty
  std::vector<float> weights_;    // [vocab_size] exp((logit - best) / temperature)
  std::vector<Candidate> candidates_;
};

}  // namespace redline
