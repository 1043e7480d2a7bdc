// Normalization of rows with a scale and a shift, learned or from a modulation.
#pragma once

#include <cstdint>

namespace redline {

/// Arguments of y[r, c] = norm(x[r])[c] * (weight[c]) * (1 + scale[c]) + (bias[c]) + (shift[c]); nullptr operands are
/// omitted.
///   norm  (x - mean) / sqrt(variance + eps), or with `centred` false x / sqrt(mean of squares + eps)
/// y may be x.
struct LayerNormArgs {
  const float* x;
  int64_t x_stride;  ///< elements between rows
  float* y;
  int64_t y_stride;
  int64_t rows, cols;
  const float* weight;
  const float* bias;
  const float* scale;
  const float* shift;
  float eps;
  bool centred;
};

}  // namespace redline
