// Epilogue of every linear kernel: bias, gate, residual and the store of one row by one row panel.
#pragma once

#include "kernels/cpu/simd_strip.h"

namespace redline::REDLINE_ISA_NS {

/// Columns from n_end on are not written; a row panel entirely past n_end stores nothing.
REDLINE_INLINE void finish_strip(const LinearArgs& a, int64_t row, int64_t n, StripF32 y) {
  const int64_t lanes = a.n_end - n, at = row * a.y_stride + n;
  if (lanes <= 0) return;
  if (a.bias) {
    const StripF32 bias = load_strip(a.bias + n, lanes);
#pragma GCC unroll 4
    for (int i = 0; i < kStripVecs; ++i) y.v[i] = y.v[i] + bias.v[i];
  }
  if (a.gate) {
    const StripF32 gate = load_strip(a.gate + n, lanes);
#pragma GCC unroll 4
    for (int i = 0; i < kStripVecs; ++i) y.v[i] = y.v[i] * gate.v[i];
  }
  if (a.residual) {
    const StripF32 residual = load_strip(a.residual + at, lanes);
#pragma GCC unroll 4
    for (int i = 0; i < kStripVecs; ++i) y.v[i] = y.v[i] + residual.v[i];
  }
  store_strip(a.y + at, y, lanes);
}

}  // namespace redline::REDLINE_ISA_NS
