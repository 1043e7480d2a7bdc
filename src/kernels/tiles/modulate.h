// Ops that depend on the item of a row: gated_add, the rows of group_norm, concat_rows and slice_rows,
// timestep_embedding.
#pragma once

#include "kernels/tiles/angles.h"
#include "kernels/tiles/elementwise.h"

namespace redline::tiles {

/// Computes y = f(x * table[item, factor ...] + z), where z is a matrix like x, or columns of the table too.
struct Modulate {
  struct Args {
    const float* x;
    const float* table;
    const float* residual;  ///< nullptr: z is the columns from `term` on of the table
    float* y;
    int32_t cols, table_cols, factor, term;
    int32_t item_rows;  ///< an index in StepTables::rows
    int32_t has_silu;
  };
  static constexpr bool kLoads = false, kLoaderWaits = false;
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables& step, Warp& w, RingPosition&) {
    const int item_rows = step.rows[a.item_rows];
    each_element(tile, w, [&](int row, const Lanes<int>& col, const Lanes<bool>& mask) {
      const float* item = a.table + int64_t{row / item_rows} * a.table_cols;
      const int64_t at = int64_t{row} * a.cols;
      const Lanes<float> term = a.residual ? w.load(a.residual + at, col, mask) : w.load(item + a.term, col, mask);
      Lanes<float> y = w.load(a.x + at, col, mask) * w.load(item + a.factor, col, mask) + term;
      if (a.has_silu) y = activate(Activation::kSilu, y);
      w.store(a.y + at, col, y, mask);
    });
  }
};

/// Item i of y gets rows [skip, skip + rows) of item i of a, then those of b. Sizes are indices in StepTables::rows.
struct ConcatRows {
  struct Args {
    const float* a;
    const float* b;  ///< nullptr: slice_rows
    float* y;
    int32_t cols;
    int32_t a_rows, a_item_rows, a_skip;
    int32_t b_rows, b_item_rows, b_skip;
  };
  static constexpr bool kLoads = false, kLoaderWaits = false;
  static TILE_FN void compute(const Args& args, const TileRange& tile, const StepTables& step, Warp& w, RingPosition&) {
    const int a_rows = step.rows[args.a_rows], all = a_rows + (args.b ? step.rows[args.b_rows] : 0);
    each_element(tile, w, [&](int row, const Lanes<int>& col, const Lanes<bool>& mask) {
      const int item = row / all, within = row % all;
      const bool is_a = within < a_rows;
      const int64_t from = is_a
                               ? int64_t{item} * step.rows[args.a_item_rows] + step.rows[args.a_skip] + within
                               : int64_t{item} * step.rows[args.b_item_rows] + step.rows[args.b_skip] + within - a_rows;
      const float* x = (is_a ? args.a : args.b) + from * args.cols;
      w.store(args.y + int64_t{row} * args.cols, col, w.load(x, col, mask), mask);
    });
  }
};

/// Computes cosines and sines of scale * (t * frequency). Every operation is rounded to float32, as in training.
struct TimestepEmbedding {
  struct Args {
    const float* timestep;
    const float* frequencies;  ///< [cols / 2]
    float* y;
    int32_t cols, cosine_first;
    float scale;
  };
  static constexpr bool kLoads = false, kLoaderWaits = false;
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables&, Warp& w, RingPosition&) {
    const int half = a.cols / 2;
    each_element(tile, w, [&](int row, const Lanes<int>& col, const Lanes<bool>& mask) {
      const Lanes<bool> in_first = col < Lanes<int>(half);
      const Lanes<float> frequency = w.load(a.frequencies, select(in_first, col, col - half), mask);
      const Lanes<float> angle = frequency * w.load_uniform(a.timestep + row) * a.scale;
      const auto [sine, cosine] = sine_cosine(angle);
      w.store(a.y + int64_t{row} * a.cols, col,
              a.cosine_first ? select(in_first, cosine, sine) : select(in_first, sine, cosine), mask);
    });
  }
};

}  // namespace redline::tiles
