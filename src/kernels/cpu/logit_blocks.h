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

/// sums[b] = the sum over block b of exp((x - best) * scale), with float32 arithmetic; no x is above `best`. Terms below
/// e^-104 count as 0. For d = (x - best) * scale, a term is within (4 |d| + 3) 2^-24 of its value (difference, product
/// with a rounded scale, exponential), a sum within another 16 * 2^-24.
struct BlockExpSumArgs {
  const float* x;
  int64_t count;
  float best, scale;
  float* sums;  ///< [num_logit_blocks(count)]
};

}  // namespace redline
