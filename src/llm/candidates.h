// The tokens that are left to choose from, and the samplers that remove some of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"
#include "llm/weight_sums.h"

namespace redline {

/// Never empty after the first add(): every sampler leaves at least one token. The vocabulary is not sorted: samplers
/// find the last token that they keep by selection, expected O(size()), and keep the order of ids.
class Candidates {
 public:
  /// They must outlive this.
  explicit Candidates(const CpuKernels& kernels) : kernels_(&kernels) {}
  /// Nothing else allocates.
  void reserve(size_t vocab_size);
  /// No tokens, at temperature 1.
  void clear();
  /// In the order of ids; the logit is finite.
  void add(Candidate token) {
    tokens_.push_back(token);
    has_weights_ = false;
  }
  size_t size() const { return tokens_.size(); }
  std::span<const Candidate> tokens() const { return tokens_; }
  /// Null if the token is not among them. The weights are computed again.
  float* logit_of(int32_t id);
  void set_temperature(float temperature);
  /// exp((logit - largest logit) / temperature) of each, as kernel block_exp_sum computes it. The largest logit is that
  /// of the last set_temperature or change of a logit.
  std::span<const float> weights();
  /// In units of 2^-42, exact.
  int64_t units();

  // The samplers, documented at the members of SamplingOptions.
  void keep_top_k(int64_t k);
  void keep_top_p(double p);
  /// The same where these are the most likely tokens of more, and the kept ones are to reach `wanted` units. False, and
  /// nothing is removed: these do not.
  bool keep_top_units(int64_t wanted);
  void keep_min_p(float p);
  void keep_typical(double p);
  void keep_top_n_sigma(double n);
  /// Removes the top choices: all but the least likely of the tokens with a probability of at least `threshold`.
  void drop_top_choices(double threshold);
  /// Mirostat 1: as many of the most likely tokens as a Zipf distribution, fitted to the first 100, needs for a
  /// surprise of mu bits.
  void keep_zipf(double mu, int64_t vocab_size);
  /// Mirostat 2: tokens with a surprise of at most mu bits.
  void keep_surprise(double mu);
  /// Natural units.
  double entropy();

  /// The token at share `u` of the weights, in [0, 1), and its probability.
  struct Drawn {
    int32_t id;
    double probability;
  };
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
  std::vector<uint32_t> order_;  ///< indices, for selection
  std::vector<double> scores_;
  float temperature_ = 1, best_ = 0;
  bool has_weights_ = false;
};

/// The scale of BlockExpSumArgs for a temperature above 0.
inline float scale_of(float temperature) {
  return std::clamp(1 / temperature, std::numeric_limits<float>::min(), 0x1p126F);
}

}  // namespace redline
