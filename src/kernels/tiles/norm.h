// rms_norm, layer_norm and modulated_norm: one group of a row per warp.
#pragma once

#include "kernels/tiles/kernel.h"

namespace redline::tiles {

/// Computes y = (x - mean) / sqrt(mean((x - mean)^2) + eps) * weight + bias over groups of `cols` elements; without
/// `centred` the subtracted mean is zero. With a table, y becomes y * (1 + table[item, scale ...]) + table[item, shift
/// ...], for whole rows.
struct Norm {
  struct Args {
    const float* x;
    const float* weight;  ///< [cols], or [row_stride] if is_own; nullptr: none
    const float* bias;    ///< like weight
    float* y;
    int32_t cols, row_stride;
    float eps;
    int32_t centred;
    int32_t is_own;                    ///< each group of a row has its own part of weight and bias
    const float* table;                ///< [items, table_cols] or nullptr
    int32_t table_cols, scale, shift;  ///< shift -1: there is none
    int32_t item_rows;                 ///< an index in StepTables::rows
  };
  static constexpr bool kLoads = false, kLoaderWaits = false;
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables& step, Warp& w, RingPosition&) {
    const int groups = (tile.col_end - tile.col_begin) / a.cols, all = (tile.row_end - tile.row_begin) * groups;
    for (int i = w.index(); i < all; i += kConsumerWarps) {
      const int row = tile.row_begin + i / groups;
      const int column = tile.col_begin + i % groups * a.cols;
      const int64_t at = int64_t{row} * a.row_stride + column;
      const float* item = a.table ? a.table + int64_t{row / step.rows[a.item_rows]} * a.table_cols : nullptr;
      normalize(a, a.x + at, item, a.is_own ? column : 0, a.y + at, w);
    }
  }

 private:
  static TILE_FN void normalize(const Args& a, const float* x, const float* item, int of_weight, float* y, Warp& w) {
    Lanes<float> sum = 0.0f;
    for (int c = 0; c < a.cols && a.centred; c += kWarpLanes) sum = sum + load(x, c, a.cols, w);
    const Lanes<float> mean = a.centred ? warp_sum(w, sum) / static_cast<float>(a.cols) : Lanes<float>(0.0f);
    Lanes<float> squares = 0.0f;
    for (int c = 0; c < a.cols; c += kWarpLanes) {
      const Lanes<bool> mask = w.lane() + c < Lanes<int>(a.cols);
      const Lanes<float> d = select(mask, load(x, c, a.cols, w) - mean, Lanes<float>(0.0f));
      squares = squares + d * d;
    }
    const Lanes<float> inverse =
        Lanes<float>(1.0f) / sqrt_of(warp_sum(w, squares) / static_cast<float>(a.cols) + a.eps);
    for (int c = 0; c < a.cols; c += kWarpLanes) {
      const Lanes<int> at = w.lane() + c;
      const Lanes<bool> mask = at < Lanes<int>(a.cols);
      Lanes<float> value = (load(x, c, a.cols, w) - mean) * inverse;
      if (a.weight) value = value * w.load(a.weight + of_weight, at, mask);
      if (a.bias) value = value + w.load(a.bias + of_weight, at, mask);
      if (item) value = value * (w.load(item + a.scale, at, mask) + 1.0f);
      if (item && a.shift >= 0) value = value + w.load(item + a.shift, at, mask);
      w.store(y, at, value, mask);
    }
  }
  static TILE_FN Lanes<float> load(const float* x, int c, int cols, Warp& w) {
    const Lanes<int> at = w.lane() + c;
    return w.load(x, at, at < Lanes<int>(cols));
  }
};

}  // namespace redline::tiles
