// Group normalization in two steps: statistics over rows, then a scale and a shift per channel.
#pragma once

#include <cstdint>

namespace redline {

struct GroupNormArgs {
  const float* x;  ///< [rows, channels] dense: pixels of one item
  int64_t rows, channels;

  // group_norm_sums: mean and sum of squared deviations per group, over the rows and the group's channels. Accumulated
  // over blocks of rows whose size depends only on `channels`.
  int64_t groups;  ///< divides channels
  float* sums;     ///< [groups][2]
  void* scratch;   ///< kScratchBytes; sufficient for kMaxGroupNormChannels

  // group_norm: y = x * scale + shift, then with `silu` y / (1 + e^-y). y may be x.
  float* y;
  const float* scale;  ///< [channels]
  const float* shift;
  bool silu;
};
inline constexpr int64_t kMaxGroupNormChannels = 32768;

}  // namespace redline
