// Finds the tokens that the first truncation sampler keeps in a row of logits, with one or two vectorized passes,
// without sorting and without examining every token. Results equal those of Candidates with the whole vocabulary, to
// the last bit.
//
// The maximum of each block of logits is computed first. The k-th largest maximum is a lower bound of the k-th largest
// logit, so that only blocks with a larger maximum have to be searched for the k most likely tokens. Weights of tokens
// and exact sums of them come from a kernel (BlockExpSumArgs).
//
// Top-p works as follows:
// 1. The pass that finds the maxima also sums the weights of each block to within 2e-5.
// 2. If few tokens remain, they are searched for in the blocks with the largest maxima. The last remaining token is
//    nearly always the same for all sums within that error. If it is not, the weights of these blocks are summed
//    exactly, and then those of all blocks.
// 3. If many tokens remain, the approximate sums cannot decide. One pass sums all weights exactly and lists the tokens
//    between two logits that a sample of the row places around the last remaining token. The list is narrowed in the
//    same way until few tokens are left.
// 4. If many tokens remained in the previous row, step 1 omits the sums: they were of no use.
#pragma once

#include <span>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/logit_blocks.h"
#include "llm/candidates.h"

namespace redline {

/// A row of logits. It refers to the logits of the last scan(), which the caller keeps.
class LogitRow {
 public:
  LogitRow(const CpuKernels& kernels, int64_t vocab_size);

  /// Reads a row. internal: a logit is NaN or +inf (the message gives its index and the position), or all are -inf;
  /// invalid_argument: the number of logits is not the vocabulary size. `top_p_temperature`: the temperature of the
  /// following top_p(); 0 if none follows.
  Status scan(std::span<const float> logits, int64_t position, float top_p_temperature = 0);
  int64_t vocab_size() const { return static_cast<int64_t>(vocab_size_); }
  float best() const { return best_; }
  int32_t best_id() const { return best_id_; }

  /// Writes all tokens except excluded ones (-inf) to `out`.
  void all(Candidates& out) const;
  // Each of these writes the remaining tokens and the temperature to `out`. If it returns false, `out` is undefined.
  bool top_k(int64_t k, float temperature, Candidates& out);
  bool top_p(float p, float temperature, Candidates& out);  ///< needs the temperature of scan()
  bool min_p(float p, float temperature, Candidates& out);
  /// Returns the least likely token that top-p keeps. Called if top_p() has returned false and has_blocks() is true.
  Candidate last_of_top_p(float p, float temperature);
  bool has_blocks() const;
  /// Writes the tokens that are at least as likely as `last` to `out`.
  void keep_down_to(Candidate last, float temperature, Candidates& out) const;
  /// Samples like Candidates::draw() from the tokens that keep_down_to() writes. Called directly after last_of_top_p().
  int32_t draw_down_to(Candidate last, float temperature, double u);
  /// Samples like Candidates::draw() from all tokens.
  int32_t draw(float temperature, double u);

 private:
  /// Writes the units of the weights of each block to sums_ and returns their sum.
  int64_t sum_blocks(float temperature);
  BlockExpSumArgs weights_of(std::span<const float> logits, float temperature) const;
  /// Computes near_ and near_total_ if scan() has not.
  void sum_near_blocks();
  /// Scales the sums in near_, whose weights are relative to the largest logit of their block, to weights relative to
  /// best_.
  void scale_near_sums();
  /// Writes the weights of maxima_ to factors_ and returns their sum.
  double weigh_maxima();
  /// Fills sample_ with short runs of logits from the whole row, and picked_ with their weights.
  void take_sample(float temperature);
  /// Returns true if no token has a large share of the weights, so that a sample can estimate how many tokens remain.
  bool is_flat(float temperature);
  /// Bounds of the sum that the most likely tokens have to reach. wanted_units() computes them with exact weights in
  /// the blocks whose maximum is at least `least` (+inf: in none) and approximate sums in the others.
  struct Wanted {
    int64_t at_least, at_most;
  };
  Wanted wanted_units(float p, float least, float temperature) const;
  /// Returns lower bounds of logits to try, in descending order. The blocks with a larger maximum than the first bound
  /// have about the wanted sum of weights.
  std::span<const float> bounds_of_top_p(double wanted, float temperature);
  /// Logits that probably enclose the last of the most likely tokens whose weights reach a share.
  struct Bracket {
    float low, high;
  };
  Bracket guess(double p, float temperature);
  /// Guess the bracket for tokens whose logits lie within `all` and whose weights are nearly equal: by interpolation,
  /// and from a sample.
  static Bracket interpolate(Bracket all, size_t tokens, double share, float temperature);
  Bracket guess_among(std::span<const float> tokens, double share);
  /// Writes the units of each kLogitBlock of `tokens` to chunks_ and returns their sum.
  int64_t sum_chunks(std::span<const float> tokens, float temperature);
  /// Searches the first `count` tokens of between_, whose logits are within `bracket` and whose weights sum to `units`.
  /// Returns the last of the most likely tokens whose weights reach `wanted`; its id is its index in between_.
  Candidate last_between(size_t count, Bracket bracket, int64_t wanted, int64_t units, float temperature);
  /// Writes to chunks_, for each kLogitBlock of the first `count` tokens of between_, the units of the tokens that are
  /// at least as likely as last_between_.
  void sum_kept(size_t count, float temperature);
  int32_t id_at(size_t place, Bracket bracket) const;
  /// Returns the n-th largest maximum of a block, but at least the lowest finite number.
  float bound(size_t n);
  /// Writes the tokens with a logit of at least `least` to `out`.
  void gather(float least, Candidates& out) const;
  std::span<const float> block(size_t b) const;

  const CpuKernels& kernels_;
  std::span<const float> logits_;
  const size_t vocab_size_;
  float best_ = 0;
  int32_t best_id_ = -1;
  std::vector<float> maxima_, ordered_;
  std::vector<float> near_, factors_;  ///< approximate sums of the weights of each block; weights of maxima_
  double near_total_ = 0;
  float near_temperature_ = 0;
  bool has_near_ = false, has_sample_ = false;
  bool was_flat_ = false;      ///< top-p kept many tokens of the previous row; affects only the time
  std::vector<int64_t> sums_;  ///< units per block; after last_of_top_p(), only of the tokens above the bracket
  // Buffers of last_of_top_p(). Its first call allocates them, because many samplers never need it.
  std::vector<float> between_, weights_, sample_, picked_;
  double sample_sum_ = 0;
  std::vector<int32_t> begins_;  ///< index in between_ of the first token of each block, and the end
  Candidate last_between_{};     ///< the last kept token; its id is its index in between_
  std::vector<int64_t> chunks_;  ///< units of each kLogitBlock tokens of between_
  struct Narrowed {
    std::vector<float> logits;
    std::vector<int32_t> places, ids;
  };
  Narrowed narrowed_[2];
  std::vector<Candidate> tokens_;
  WeightSearch search_;
};

}  // namespace redline
