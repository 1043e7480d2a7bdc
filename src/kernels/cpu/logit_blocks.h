// Passes over a row of logits, with one result for each block of it.
#pragma once

#include <cstdint>

namespace redline {

inline constexpr int64_t kLogitBlock = 128;
constexpr int64_t num_logit_blocks(int64_t count) { return (count + kLogitBlock - 1) / kLogitBlock; }

/// Arguments of block_max: max[b] = the largest x of block b. The kernel returns whether no x is NaN; all results are
/// undefined if one is.
///
/// near_sums are sums of exp((x - max[b]) * scale) over block b, in float32, within a relative error of kNearSumError.
/// They take two thirds of the time of exact sums.
inline constexpr double kNearSumError = 5e-6;
struct BlockMaxArgs {
  const float* x;
  int64_t count;
  float* max;                  ///< [num_logit_blocks(count)]
  float scale = 0;             ///< see BlockExpSumArgs
  float* near_sums = nullptr;  ///< [num_logit_blocks(count)]; nullptr: not computed
};

/// Maximum number of logits whose exact sums do not overflow. Each weight is rounded to units of 2^-42, to nearest
/// even.
inline constexpr int64_t kMaxLogits = int64_t{1} << 20;

/// Arguments of block_exp_sum: the weight exp((x - best) * scale) of each x, none of which is above `best`, in float32.
/// All instruction sets give the same bits, and sums are exact, so nothing depends on the order of additions. For d =
/// (x - best) * scale, a weight is within (4 |d| + 4) 2^-24 of its value, relatively, and below 2^-102 within 2^-126.
///
/// Outputs that are null are not computed.
struct BlockExpSumArgs {
  const float* x;
  int64_t count;
  float best, scale;         ///< scale is a normal number, at most 2^126
  float* weights = nullptr;  ///< [count]; may be x
  int64_t* sums = nullptr;   ///< [num_logit_blocks(count)]: sum of each block, in units of 2^-42

  /// With `places` or `total`, sums are those of x >= high, and the x of [low, high) are listed in their order;
  /// low > -inf. With `places` and without `sums` no weights are computed.
  float low = 0, high = 0;
  float* between = nullptr;   ///< the listed x; room for count + kLogitBlock, like `places`
  int32_t* places = nullptr;  ///< the indices of the listed x
  int64_t* num_between = nullptr;
  // With `sums`, these may be set instead of `places`:
  int64_t* total = nullptr;   ///< the sum of all blocks, including x above `high`
  int32_t* begins = nullptr;  ///< [num_logit_blocks(count) + 1]: number of listed x before those of each block
};

}  // namespace redline
