// Passes over a row of logits, with one result for each block of it.
#pragma once

#include <cstdint>

namespace redline {

inline constexpr int64_t kLogitBlock = 128;
constexpr int64_t num_logit_blocks(int64_t count) { return (count + kLogitBlock - 1) / kLogitBlock; }

/// max[b] = the largest x of block b. The kernel returns whether no x is NaN; `max` is undefined if one is.
struct BlockMaxArgs {
  const float* x;
  int64_t count;
  float* max;  ///< [num_logit_blocks(count)]
};

/// sums[b] = the sum of exp((x - best) * scale) over the x < limit of block b, with float32 arithmetic; no x is above
/// `best`. Terms below 2^-126 count as 2^-126. For d = (x - best) * scale, a term is within (4 |d| + 4) 2^-24 of its value
/// (difference, product with a rounded constant, exponential), a sum within another 20 * 2^-24.
struct BlockExpSumArgs {
  const float* x;
  int64_t count;
  float best, scale;
  float limit;  ///< +inf: none
  float* sums;  ///< [num_logit_blocks(count)]
};

}  // namespace redline
