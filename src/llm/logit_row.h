// One row of logits, and the tokens that a first truncation keeps: found with one or two vectorized passes, without a
// sort and without a look at most tokens. Results are those of Candidates with the whole vocabulary, to the last bit.
//
// The maximum of each block of logits is computed first. The k-th largest maximum is a lower bound of the k-th largest
// logit, so that only blocks with a larger maximum have to be searched for the k most likely tokens. Weights of tokens
// and exact sums of them come from a kernel (BlockExpSumArgs). For top-p the same pass that finds the maxima sums the
// weights of each block to within 2e-5. If the tokens that are left are few, they are looked for in the blocks with the
// largest maxima, and the last one is nearly always the same for all sums within that error; if it is not, the weights
// of these blocks are summed exactly, and then all. If the tokens are many, their sum decides by less than its error:
// one pass sums all weights exactly, and lists the tokens between two logits that a sample of the row
// puts around the last one; then a sample of these, until few are left. A row like the one before it, of which many
// tokens were left, does without the first sums.
#pragma once

#include <span>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/logit_blocks.h"
#include "llm/candidates.h"

namespace redline {

/// Reads the logits of the last scan(), which the caller keeps.
class LogitRow {
 public:
  LogitRow(const CpuKernels& kernels, int64_t vocab_size);

  /// internal: a logit is NaN or +inf (the message gives its index and the position), or all are -inf;
  /// invalid_argument: the number of logits is not the vocabulary size. `top_p_temperature`: of the top_p that follows,
  /// if one does.
  Status scan(std::span<const float> logits, int64_t position, float top_p_temperature = 0);
  int64_t vocab_size() const { return static_cast<int64_t>(vocab_size_); }
  float best() const { return best_; }
  int32_t best_id() const { return best_id_; }

  /// Writes all tokens but excluded ones (-inf) to `out`.
  void all(Candidates& out) const;
  // Each writes the tokens that are left to `out`, with the temperature. False: `out` is undefined.
  bool top_k(int64_t k, float temperature, Candidates& out);
  bool top_p(float p, float temperature, Candidates& out);  ///< the temperature of scan()
  bool min_p(float p, float temperature, Candidates& out);
  /// Top-p after top_p() has given false, with has_blocks(): the last token that is left.
  Candidate last_of_top_p(float p, float temperature);
  bool has_blocks() const;
  /// The tokens not less likely than `last`, to `out`.
  void keep_down_to(Candidate last, float temperature, Candidates& out) const;
  /// As Candidates::draw of these, directly after last_of_top_p.
  int32_t draw_down_to(Candidate last, float temperature, double u);
  /// As Candidates::draw of all tokens.
  int32_t draw(float temperature, double u);

 private:
  /// The units of the weights of each block, to sums_; their sum.
  int64_t sum_blocks(float temperature);
  BlockExpSumArgs weights_of(std::span<const float> logits, float temperature) const;
  /// near_ and near_total_, if scan() has left them out.
  void sum_near_blocks();
  /// near_ from sums of the kernel, whose weights are relative to the largest of each block.
  void scale_near_sums();
  /// The weights of maxima_, to factors_; their sum.
  double weigh_maxima();
  /// Runs of logits over the row, and their weights.
  void take_sample(float temperature);
  /// Whether no token takes much, so that the sample tells how many are left.
  bool is_flat(float temperature);
  /// Bounds of the sum that the likeliest tokens have to reach, with exact weights in blocks that have a logit of
  /// `least`; +inf: in none.
  struct Wanted {
    int64_t at_least, at_most;
  };
  Wanted wanted_units(float p, float least, float temperature) const;
  /// Logits such that the blocks with a larger maximum have most of the wanted weights, in descending order.
  std::span<const float> bounds_of_top_p(double wanted, float temperature);
  /// Bounds between which, probably, the likeliest tokens reach the share p.
  struct Bracket {
    float low, high;
  };
  Bracket guess(double p, float temperature);
  /// The same of tokens that lie between `all` and whose weights are nearly alike: by interpolation, and by a sample.
  static Bracket interpolate(Bracket all, size_t tokens, double share, float temperature);
  Bracket guess_among(std::span<const float> tokens, double share);
  /// The units of each kLogitBlock of `tokens`, to chunks_; their sum.
  int64_t sum_chunks(std::span<const float> tokens, float temperature);
  /// Of the first `count` tokens of between_, which `bracket` holds, the last of the likeliest that reach `wanted` of
  /// their `units`; its id is its place in between_.
  Candidate last_between(size_t count, Bracket bracket, int64_t wanted, int64_t units, float temperature);
  /// Of each kLogitBlock of them the units of those not less likely than last_between_, to chunks_.
  void sum_kept(size_t count, float temperature);
  int32_t id_at(size_t place, Bracket bracket) const;
  /// The n-th largest maximum of a block, at least the lowest finite number.
  float bound(size_t n);
  /// The tokens with a logit of at least `least`.
  void gather(float least, Candidates& out) const;
  std::span<const float> block(size_t b) const;

  const CpuKernels& kernels_;
  std::span<const float> logits_;
  const size_t vocab_size_;
  float best_ = 0;
  int32_t best_id_ = -1;
  std::vector<float> maxima_, ordered_;
  std::vector<float> near_, factors_;  ///< sums of the weights of each block, and the weights of maxima_
  double near_total_ = 0;
  float near_temperature_ = 0;
  bool has_near_ = false, has_sample_ = false;
  bool was_flat_ = false;      ///< the last row with top-p; only the time depends on it
  std::vector<int64_t> sums_;  ///< behind last_of_top_p: of the tokens above those of between_
  // Of last_of_top_p, which a sampler may never need: allocated by the first one.
  std::vector<float> between_, weights_, sample_, picked_;
  double sample_sum_ = 0;
  std::vector<int32_t> begins_;  ///< the place in between_ of the first token of each block, and the end
  Candidate last_between_{};     ///< the last token that is left; its id is its place in between_
  std::vector<int64_t> chunks_;  ///< of kLogitBlock tokens of between_
  struct Narrowed {
    std::vector<float> logits;
    std::vector<int32_t> places, ids;
  };
  Narrowed narrowed_[2];
  std::vector<Candidate> tokens_;
  WeightSearch search_;
};

}  // namespace redline
