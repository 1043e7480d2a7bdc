// Residual addition with a gate per column.
#pragma once

#include <cstdint>

namespace redline {

/// Arguments of y[r, c] = a[r, c] + gate[c] * b[r, c]. Rows dense; y may be a or b.
struct GatedAddArgs {
  const float* a;
  const float* b;
  const float* gate;
  float* y;
  int64_t rows, cols;
};

}  // namespace redline
