// Attention of one head of one item with a bias by relative position of key and query (T5).
#pragma once

#include <cstdint>

namespace redline {

/// Arguments of y[r] = sum_p softmax_p(scale * q[r] . k[p] + bias[p - t]) v[p], t = first_row + r, p in [0, keys).
/// Without keys y is zero. y may not overlap the operands. head_dim is at most 512.
struct RelativeBiasAttentionArgs {
  const float* q;  ///< row r at q + r * q_stride, head_dim elements
  int64_t q_stride;
  const float* k;
  const float* v;
  int64_t kv_stride;
  float* y;
  int64_t y_stride;
  int64_t rows, first_row;
  int64_t keys, head_dim;
  float scale;
  /// Bias at distance 0. Distances -(first_row + rows - 1) .. keys - 1 - first_row are stored around it.
  const float* bias;
  void* scratch;  ///< kScratchBytes
};

}  // namespace redline
