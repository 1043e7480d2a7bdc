// The epilogue of every linear kernel: bias, gate, residual and the store of one row by one row panel.
#pragma once

#include "kernels/cpu/simd_row_panel.h"

namespace redline::REDLINE_ISA_NS {

/// Stores a row of a row panel. Columns from n_end on are not written; a row panel entirely past n_end stores nothing.
REDLINE_INLINE void finish_row_panel(const LinearArgs& a, int64_t row, int64_t n, RowPanelF32 y) {
  const int64_t lanes = a.n_end - n, at = row * a.y_stride + n;
  if (lanes <= 0) return;
  if (a.bias) {
    const RowPanelF32 bias = load_row_panel(a.bias + n, lanes);
#pragma GCC unroll 4
    for (int i = 0; i < kRowPanelVecs; ++i) y.v[i] = y.v[i] + bias.v[i];
  }
  if (a.gate) {
    const RowPanelF32 gate = load_row_panel(a.gate + n, lanes);
#pragma GCC unroll 4
    for (int i = 0; i < kRowPanelVecs; ++i) y.v[i] = y.v[i] * gate.v[i];
  }
  if (a.residual) {
    const RowPanelF32 residual = load_row_panel(a.residual + at, lanes);
#pragma GCC unroll 4
    for (int i = 0; i < kRowPanelVecs; ++i) y.v[i] = y.v[i] + residual.v[i];
  }
  store_row_panel(a.y + at, y, lanes);
}

REDLINE_INLINE void prefetch_to_write(const void* at) {
#ifdef __x86_64__
  // Without -mprfchw the builtin prefetches for reading. A CPU without the instruction ignores it.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(at)));
#else
  __builtin_prefetch(at, 1);
#endif
}

/// Prefetches the memory that finish_row_panel will read and write, while a tile is multiplied. The rows of y are so
/// far apart that no hardware prefetcher finds them, and they are rarely in the first two caches.
REDLINE_INLINE void prefetch_finish(const LinearArgs& a, int64_t row, int64_t rows, int64_t n, int64_t row_panels) {
  for (int64_t r = row; r < row + rows; ++r) {
    for (int64_t at = n; at < min_i64(n + row_panels * kRowPanelRows, a.n_end); at += kRowPanelRows) {
      prefetch_to_write(a.y + r * a.y_stride + at);
      if (a.residual != nullptr && a.residual != a.y) __builtin_prefetch(a.residual + r * a.y_stride + at);
    }
  }
}

}  // namespace redline::REDLINE_ISA_NS
