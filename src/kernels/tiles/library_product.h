// Kernels around a product that a library of the device computes (TileDevice::multiply): they convert its operands to
// the format that libraries read, and apply the epilogue. The stage is a Linear with a bfloat16 weight of one matrix,
// whose arguments these kernels share; the operands are in StepTables::library.
#pragma once

#include "kernels/tiles/linear.h"

namespace redline::tiles {

/// Writes the weight's columns of a tile, row by row. The first row part of the grid covers all of them.
struct UnpackWeight {
  using Args = LinearArgs;
  static constexpr bool kLoads = false, kLoaderWaits = false;
  /// Lane (half, row) copies: a 64-byte line of the panel has two elements of each of its 16 rows.
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables& step, Warp& w, RingPosition&) {
    const Lanes<int> row = w.lane() % 16, half = w.lane() / 16;
    const int lines = a.in_features / 2;
    for (int panel = tile.col_begin / 16 + w.index(); 16 * panel < tile.col_end; panel += kConsumerWarps) {
      const auto* from = reinterpret_cast<const uint32_t*>(a.weight + int64_t{panel} * a.panel_stride);
      auto* to = reinterpret_cast<uint32_t*>(step.library.w) + int64_t{16} * panel * lines;
      for (int line = 0; line < lines; line += 2) {
        const Lanes<int> at = half + line;
        const Lanes<bool> mask = (at < Lanes<int>(lines)) & (row + 16 * panel < Lanes<int>(a.out_features));
        w.store(to, row * lines + at, w.load(from, at * 16 + row, mask), mask);
      }
    }
  }
};

/// Rounds rows of x to bfloat16. The tiles of a row part share its columns.
struct RoundRows {
  using Args = LinearArgs;
  static constexpr bool kLoads = false, kLoaderWaits = false;
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables& step, Warp& w, RingPosition&) {
    const int tiles = (a.out_features + kLinearCols - 1) / kLinearCols, pairs = a.in_features / 2;
    const int chunks = (pairs + kWarpLanes - 1) / kWarpLanes, first = tile.col_begin / kLinearCols;
    for (int row = tile.row_begin + w.index(); row < tile.row_end; row += kConsumerWarps) {
      const float* from = a.x + int64_t{row} * a.x_stride;
      auto* to = reinterpret_cast<uint32_t*>(step.library.x) + int64_t{row} * pairs;
      for (int chunk = first; chunk < chunks; chunk += tiles) {
        const Lanes<int> at = w.lane() + chunk * kWarpLanes;
        const Lanes<bool> mask = at < Lanes<int>(pairs);
        w.store(to, at, pack_bf16(w.load(from, at * 2, mask), w.load(from, at * 2 + 1, mask)), mask);
      }
    }
  }
};

/// Applies the epilogue of Linear.
struct FinishRows {
  using Args = LinearArgs;
  static constexpr bool kLoads = false, kLoaderWaits = false;
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables& step, Warp& w, RingPosition&) {
    const detail::Product product{tile.row_begin, tile.row_end, 0, tile.col_begin, tile.col_end};
    each_element(tile, w, [&](int row, const Lanes<int>& col, const Lanes<bool>& mask) {
      const Lanes<float> sum = w.load(step.library.y + int64_t{row} * a.out_features, col, mask);
      detail::finish<detail::DenseRows>(a, product, step, w, row, col, sum);
    });
  }
};

}  // namespace redline::tiles
