// One row of logits, and the tokens that a first truncation keeps: found with one or two vectorized passes, without a
// sort and without a look at most tokens. Results are those of Candidates with the whole vocabulary, to the last bit.
//
// The maximum of each block of logits is computed first. The k-th largest maximum is a lower bound of the k-th largest
// logit, so that only blocks with a larger maximum have to be searched for the k most likely tokens. Sums of
// probabilities over the other blocks come from a vectorized exponential, whose error is bounded; where a result depends
// on that error, the functions return false, and the caller computes it from the whole vocabulary.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/cpu_kernels.h"
#include "llm/candidates.h"

namespace redline {

/// Reads the logits of the last scan(), which the caller keeps.
class LogitRow {
 public:
  LogitRow(const CpuKernels& kernels, int64_t vocab_size);

  /// internal: a logit is NaN or +inf (the message gives its index and the position), or all are -inf; invalid_argument:
  /// the number of logits is not the vocabulary size.
  Status scan(std::span<const float> logits, int64_t position);
  int64_t vocab_size() const { return static_cast<int64_t>(vocab_size_); }
  float best() const { return best_; }
  int32_t best_id() const { return best_id_; }

  /// Writes all tokens but excluded ones (-inf) to `out`.
  void all(Candidates& out) const;
  // Each writes the tokens that are left to `out`, with the temperature. False: `out` is undefined.
  bool top_k(int64_t k, float temperature, Candidates& out);
  bool top_p(float p, float temperature, Candidates& out);
  bool min_p(float p, float temperature, Candidates& out);
  /// As Candidates::draw of all tokens.
  std::optional<int32_t> draw(float temperature, double u);

 private:
  bool can_sum(float temperature) const;
  /// The sum of the weights below `limit` in each block of `logits`.
  void sum_blocks(std::span<const float> logits, float temperature, float limit, float* sums) const;
  /// The n-th largest maximum of a block, at least the lowest finite number.
  float bound(size_t n);
  /// The tokens with a logit of at least `least`.
  void gather(float least, Candidates& out) const;
  /// The sum of the weights below `least`; sums_ has those of whole blocks.
  double sum_below(float least, float temperature) const;
  std::span<const float> block(size_t b) const;
  /// As Candidates::weights.
  float weight(float logit, float temperature) const;

  const CpuKernels& kernels_;
  std::span<const float> logits_;
  const size_t vocab_size_;
  float best_ = 0;
  int32_t best_id_ = -1;
  std::vector<float> maxima_, sums_, ordered_;
  std::vector<uint32_t> largest_;  ///< blocks
  std::vector<double> exact_sums_;
};

}  // namespace redline
