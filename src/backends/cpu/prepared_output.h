// Helper of lowerings whose output only linear ops read. They compute float32 rows in scratch and store them in the
// output's activation layouts (ValueInfo::layouts), without another pass over memory.
#pragma once

#include <algorithm>

#include "backends/cpu/lowering.h"

namespace redline {

struct PreparedOutput {
  ActivationLayouts layouts;
  void (*prepare[ActivationLayouts::kMax])(const PrepareXArgs&) = {};
  Dim rows = 1;
  int64_t cols = 0;

  /// Returns the object for output 0 of the op. unsupported: the kernel table lacks one of the layouts.
  static Result<PreparedOutput> make(const LowerContext& c) {
    PreparedOutput p;
    const ValueInfo& out = c.out();
    p.layouts = out.layouts;
    p.rows = out.shape[0];
    p.cols = out.shape[1].constant();
    for (int i = 0; i < p.layouts.count; ++i) {
      const ActivationLayout form = p.layouts.at[i].layout;
      p.prepare[i] = c.kernels().prepare_x[static_cast<int>(form)];
      if (form != ActivationLayout::kF32 && !p.prepare[i])
        return unsupported("no kernel prepares x as {}", activation_layout_name(form));
    }
    return p;
  }

  /// Stores the tile whose first element is at `x`, with rows `x_stride` apart. `rows_now`: number of rows of this
  /// step, which determines the layout.
  void write(const float* x, int64_t x_stride, int64_t rows_now, const Tile& tile, void* out) const {
    if (auto* store = prepare[layouts.index_for_rows(rows_now)]) {
      store({.x = x,
             .x_stride = x_stride,
             .cols = cols,
             .row_begin = tile.row_begin,
             .row_end = tile.row_end,
             .col_begin = tile.col_begin,
             .col_end = tile.col_end,
             .out = out});
      return;
    }
    auto* y = static_cast<float*>(out);
    for (int64_t r = tile.row_begin; r < tile.row_end; ++r)
      std::memcpy(y + r * cols + tile.col_begin, x + (r - tile.row_begin) * x_stride,
                  static_cast<size_t>(tile.col_end - tile.col_begin) * sizeof(float));
  }

  /// Stores a tile that is computed in scratch, a few rows at a time: fill(part, x) writes the rows and columns of
  /// `part` to x, with a row stride of the number of columns of `part`.
  template <class Fill>
  void write_parts(const Tile& tile, int64_t rows_now, void* scratch, void* out, const Fill& fill) const {
    const int64_t width = tile.col_end - tile.col_begin;
    const int64_t most = std::min(kXTileRows, kScratchBytes / std::max<int64_t>(width * int64_t{sizeof(float)}, 1));
    auto* x = static_cast<float*>(scratch);
    Tile part = tile;
    for (; part.row_begin < tile.row_end; part.row_begin = part.row_end) {
      part.row_end = std::min(part.row_begin + most, tile.row_end);
      fill(part, x);
      write(x, width, rows_now, part, out);
    }
  }
};

}  // namespace redline
