// Low-rank adapters of a product: t = scale x down^T, then y += t up^T + scale bias (graph/adapters.h). Factors are
// packed float32 row panels.
#pragma once

#include "kernels/tiles/conv2d.h"

namespace redline::tiles {

/// Returns the index of element (row, k) in a packed float32 matrix of `cols` columns.
TILE_FN Lanes<int> panel_element(const Lanes<int>& row, const Lanes<int>& k, int cols) {
  return ((row / 16) * cols + k) * 16 + row % 16;
}

struct AdapterDownArgs {
  const float* x;
  float* t;
  int32_t in_features, t_cols, site;
};
struct ConvAdapterDownArgs : AdapterDownArgs {
  PatchShape patch;
};
namespace detail {
TILE_FN RowOfX adapter_row(const AdapterDownArgs& a, const StepTables&, int row) {
  return {a.x + int64_t{row} * a.in_features};
}
TILE_FN Patch adapter_row(const ConvAdapterDownArgs& a, const StepTables& step, int row) {
  return {a.patch, a.x, step, row};
}
}  // namespace detail

/// Computes t[row, t_begin + r] = scale x[row] . down[r] for the adapters of a site. Task i computes every n-th row.
template <class DownArgs>
struct BasicAdapterDown {
  using Args = DownArgs;
  static constexpr bool kLoads = false, kLoaderWaits = false;
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables& step, Warp& w, RingPosition&) {
    if (!step.adapter_begin) return;
    for (int p = step.adapter_begin[a.site]; p < step.adapter_begin[a.site + 1]; ++p) {
      const AdapterPart& part = step.adapter_parts[p];
      for (int row = part.row_begin + tile.index; row < part.row_end; row += step.num_partitions) {
        const auto x = detail::adapter_row(a, step, row);
        for (int r = w.index(); r < part.rank; r += kConsumerWarps) {
          Lanes<float> sum = 0.0f;
          for (int k = 0; k < a.in_features; k += kWarpLanes) {
            const Lanes<int> at = w.lane() + k;
            const Lanes<bool> mask = at < Lanes<int>(a.in_features);
            sum = sum + x.load(at, mask, w) * w.load(part.down, panel_element(r, at, a.in_features), mask);
          }
          w.store(a.t + int64_t{row} * a.t_cols + part.t_begin, Lanes<int>(r), warp_sum(w, sum) * part.scale,
                  w.lane() == Lanes<int>(0));
        }
      }
    }
  }
};
using AdapterDown = BasicAdapterDown<AdapterDownArgs>;
using ConvAdapterDown = BasicAdapterDown<ConvAdapterDownArgs>;

/// Computes y = x + t up^T + scale bias; y may be x.
struct AdapterUp {
  struct Args {
    const float* x;
    const float* t;
    float* y;
    int32_t cols, t_cols, site;
  };
  static constexpr bool kLoads = false, kLoaderWaits = false;
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables& step, Warp& w, RingPosition&) {
    const int begin = step.adapter_begin ? step.adapter_begin[a.site] : 0;
    const int end = step.adapter_begin ? step.adapter_begin[a.site + 1] : 0;
    if (begin == end && a.x == a.y) return;
    each_element(tile, w, [&](int row, const Lanes<int>& col, const Lanes<bool>& mask) {
      Lanes<float> sum = w.load(a.x + int64_t{row} * a.cols, col, mask);
      for (int p = begin; p < end; ++p) {
        const AdapterPart& part = step.adapter_parts[p];
        if (row < part.row_begin || row >= part.row_end) continue;
        const float* t = a.t + int64_t{row} * a.t_cols + part.t_begin;
        if (part.bias) sum = sum + w.load(part.bias, col, mask) * part.scale;
        for (int r = 0; r < part.rank; ++r)
          sum = sum + w.load(part.up, panel_element(col, r, part.rank), mask) * w.load_uniform(t + r);
      }
      w.store(a.y + int64_t{row} * a.cols, col, sum, mask);
    });
  }
};

}  // namespace redline::tiles
