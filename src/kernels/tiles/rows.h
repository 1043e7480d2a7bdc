// Lookup and placement of rows and columns: embedding, gather_rows, gather_columns and place_rows.
#pragma once

#include "kernels/tiles/kernel.h"
#include "kernels/tiles/panel.h"

namespace redline::tiles {

/// Computes y[t] = row tokens[t] of a packed weight.
struct Embedding {
  struct Args {
    PanelFormat format;
    const int32_t* tokens;
    const uint8_t* weight;
    float* y;
    int32_t hidden_size, panel_bytes;
  };
  static constexpr bool kLoads = false, kLoaderWaits = false;
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables&, Warp& w, RingPosition&) {
    const int per_line = a.format.planes == Planes::kF32 ? 1 : 2, lines = (a.hidden_size + per_line - 1) / per_line;
    for (int t = tile.row_begin + w.index(); t < tile.row_end; t += kConsumerWarps) {
      const int32_t token = w.load_uniform(a.tokens + t);
      const auto* panel = reinterpret_cast<const uint32_t*>(a.weight + int64_t{token / 16} * a.panel_bytes);
      const auto words = [&](const Lanes<int>& offset) { return w.load(panel, offset / 4); };
      const Panel<decltype(words)> weights(a.format, words);
      const auto* bytes = reinterpret_cast<const uint8_t*>(panel);
      const Lanes<float> scale = row_scales(a.format, bytes, a.panel_bytes, token % 16, true, w);
      for (int k = 0; k < a.hidden_size; k += 4 * kWarpLanes) {
        const Lanes<int> element = w.lane() * 4 + k;
        // Lanes past the end decode the first elements again.
        const Lanes<int> quad = select(element < Lanes<int>(a.hidden_size), element / 4, Lanes<int>(0));
        Lanes<float> v[4];
        weights.quad(token % 16, quad, lines, v);
        for (int i = 0; i < 4; ++i)
          w.store(a.y + int64_t{t} * a.hidden_size, element + i, v[i] * scale, element + i < Lanes<int>(a.hidden_size));
      }
    }
  }
};

/// Computes y[i] = x[rows[i]].
struct GatherRows {
  struct Args {
    const float* x;
    const int32_t* rows;
    float* y;
    int32_t cols;
  };
  static constexpr bool kLoads = false, kLoaderWaits = false;
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables&, Warp& w, RingPosition&) {
    each_element(tile, w, [&](int row, const Lanes<int>& col, const Lanes<bool>& mask) {
      const int64_t from = int64_t{w.load_uniform(a.rows + row)} * a.cols;
      w.store(a.y + int64_t{row} * a.cols, col, w.load(a.x + from, col, mask), mask);
    });
  }
};

/// Computes y[i][k] = x[i][columns[k]].
struct GatherColumns {
  struct Args {
    const float* x;
    const float* columns;  ///< int32 values, stored as float
    float* y;
    int32_t x_cols, y_cols;
  };
  static constexpr bool kLoads = false, kLoaderWaits = false;
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables&, Warp& w, RingPosition&) {
    each_element(tile, w, [&](int row, const Lanes<int>& col, const Lanes<bool>& mask) {
      const Lanes<int> from = w.load(reinterpret_cast<const int32_t*>(a.columns), col, mask);
      w.store(a.y + int64_t{row} * a.y_cols, col, w.load(a.x + int64_t{row} * a.x_cols, from, mask), mask);
    });
  }
};

/// Computes y = x, where rows replace the rows at[i] or are added to them; y may be x.
struct PlaceRows {
  struct Args {
    const float* x;
    const float* rows;  ///< [rows, cols]
    const int32_t* at;  ///< [rows], ascending
    float* y;
    int32_t cols;
    int32_t row_dim;  ///< index in StepTables::rows of the number of `rows`
    int32_t adds;     ///< 1: the rows are added
  };
  static constexpr bool kLoads = false, kLoaderWaits = false;
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables& step, Warp& w, RingPosition&) {
    const int count = step.rows[a.row_dim];
    each_element(tile, w, [&](int row, const Lanes<int>& col, const Lanes<bool>& mask) {
      int place = 0;  // of the first row that is not placed before `row`
      for (int end = count; place < end;) {
        const int middle = (place + end) / 2;
        if (w.load_uniform(a.at + middle) < row) place = middle + 1;
        else end = middle;
      }
      Lanes<float> y = w.load(a.x + int64_t{row} * a.cols, col, mask);
      if (place < count && w.load_uniform(a.at + place) == row) {
        const Lanes<float> placed = w.load(a.rows + int64_t{place} * a.cols, col, mask);
        y = a.adds != 0 ? y + placed : placed;
      }
      w.store(a.y + int64_t{row} * a.cols, col, y, mask);
    });
  }
};

}  // namespace redline::tiles
