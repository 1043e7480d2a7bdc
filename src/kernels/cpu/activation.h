// Pointwise activation functions between linear layers.
#pragma once

#include "tensor/activation.h"

namespace redline {

/// Arguments of y[r, c] = f(x[r, c]) (* up[r, c]). y may be x or up.
struct ActivationArgs {
  const float* x;
  int64_t x_stride;  ///< elements between rows
  const float* up;   ///< nullptr: no factor
  int64_t up_stride;
  float* y;
  int64_t y_stride;
  int64_t rows, cols;
  Activation kind;
};

}  // namespace redline
