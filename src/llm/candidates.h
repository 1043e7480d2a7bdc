// The tokens that may be sampled, and the samplers that remove some of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"
#include "llm/weight_sums.h"

namespace redline {

/// A list of tokens with their logits, in the order of ids. It is never empty after the first add(): every sampler
/// leaves at least one token. Samplers do not sort: they find the least likely token that they keep by selection, in
/// expected O(size()).
class Candidates {
 public:
  /// `kernels` must outlive the object.
  explicit Candidates(const CpuKernels& kernels) : kernels_(&kernels) {}
  /// Allocates memory for `vocab_size` tokens; no other function allocates.
  void reserve(size_t vocab_size);
  /// Removes all tokens and sets the temperature to 1.
  void clear();
  /// Appends a token, whose id must be larger than those before. Its logit is finite.
  void add(Candidate token) {
    tokens_.push_back(token);
    has_weights_ = false;
  }
  size_t size() const { return tokens_.size(); }
  std::span<const Candidate> tokens() const { return tokens_; }
  /// Returns the logit of a token, to be changed; null if the token is not in the list. Invalidates the weights.
  float* logit_of(int32_t id);
  void set_temperature(float temperature);
  /// Returns exp((logit - largest logit) / temperature) of each token, as the kernel block_exp_sum computes it. The
  /// largest logit is determined after set_temperature() and after a change of a logit, not after tokens were removed.
  std::span<const float> weights();
  /// Returns the sum of the weights in units of 2^-42, exactly.
  int64_t units();

  // The samplers, documented at the members of SamplingOptions.
  void keep_top_k(int64_t k);
  void keep_top_p(double p);
  /// keep_top_p() for a list that holds only the most likely tokens of a vocabulary: keeps the most likely tokens whose
  /// weights reach `wanted` units. Returns false, without a change, if all tokens together do not reach them.
  bool keep_top_units(int64_t wanted);
  void keep_min_p(float p);
  void keep_typical(double p);
  void keep_top_n_sigma(double n);
  /// Removes the top choices: all but the least likely of the tokens with a probability of at least `threshold`.
  void drop_top_choices(double threshold);
  /// Mirostat 1: keeps the k most likely tokens. k is computed for a surprise of mu bits from a Zipf distribution
  /// fitted to the 100 most likely tokens.
  void keep_zipf(double mu, int64_t vocab_size);
  /// Mirostat 2: keeps tokens with a surprise of at most mu bits.
  void keep_surprise(double mu);
  /// Returns the entropy of the distribution in nats.
  double entropy();

  /// A sampled token and its probability.
  struct Drawn {
    int32_t id;
    double probability;
  };
  /// Samples a token: the first one at which the cumulative weight, in the order of ids, exceeds the share `u` in [0,
  /// 1).
  Drawn draw(double u);

 private:
  template <class Keep>
  void filter(Keep keep);
  template <class Before, class Reached>
  uint32_t last_of_units(Before before, Reached reached);
  bool is_likelier(uint32_t a, uint32_t b) const { return likelier(tokens_[a], tokens_[b]); }
  void keep_down_to(Candidate least);
  void number_tokens();

  const CpuKernels* kernels_;
  std::vector<Candidate> tokens_;
  std::vector<float> weights_;
  WeightSearch search_;
  std::vector<uint32_t> order_;  ///< indices of tokens, for selection
  std::vector<double> scores_;
  float temperature_ = 1, best_ = 0;
  bool has_weights_ = false;
};

/// Returns BlockExpSumArgs::scale for a temperature above 0.
inline float scale_of(float temperature) {
  return std::clamp(1 / temperature, std::numeric_limits<float>::min(), 0x1p126F);
}

}  // namespace redline
