// rope_table and rope (graph/ops/rope.h).
#pragma once

#include "kernels/tiles/angles.h"
#include "kernels/tiles/kernel.h"

namespace redline::tiles {

struct RopeTable {
  struct Args {
    const int32_t* positions;       ///< [tokens], or [tokens, num_axes] if axes is set
    const int32_t* lengths;         ///< nullptr: the table does not depend on them
    const float* frequencies;       ///< [half]
    const float* long_frequencies;  ///< used for sequences longer than long_context; nullptr: none
    const float* axes;              ///< [half]: axis of each frequency, int32 values stored as float; nullptr: one axis
    float* y;                       ///< [tokens, 2 * half]: cosines, then sines
    int32_t half;
    int32_t long_context;     ///< 0: off
    int32_t dynamic_context;  ///< 0: off
    int32_t num_axes;         ///< axes of the positions, if axes is set
    float attention_factor;
    double base, factor;     ///< parameters of dynamic scaling
    double growth_beta;      ///< factor of the logarithm by which tables of queries grow
    int32_t growth_context;  ///< 0: tables do not grow with the position
  };
  static constexpr bool kLoads = false, kLoaderWaits = false;
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables&, Warp& w, RingPosition&) {
    for (int t = tile.row_begin + w.index(); t < tile.row_end; t += kConsumerWarps) {
      const int32_t first = w.load_uniform(a.positions + int64_t{t} * (a.axes ? a.num_axes : 1));
      const auto position = static_cast<float>(first);
      const float factor = a.growth_context > 0 ? grown_factor(a, first) : a.attention_factor;
      const int32_t length = a.lengths ? w.load_uniform(a.lengths + t) : 0;
      const bool is_long = a.long_context > 0 && length > a.long_context;
      const bool is_dynamic = a.dynamic_context > 0 && length > a.dynamic_context;
      for (int i = 0; i < a.half; i += kWarpLanes) {
        const Lanes<int> at = w.lane() + i;
        const Lanes<bool> mask = at < Lanes<int>(a.half);
        const Lanes<float> frequency = is_dynamic ? dynamic_frequency(a, length, at)
                                                  : w.load(is_long ? a.long_frequencies : a.frequencies, at, mask);
        // Angles are rounded to float32, as in PyTorch implementations.
        const Lanes<float> angle = a.axes ? frequency * position_of(a, t, at, mask, w) : frequency * position;
        float* row = a.y + int64_t{t} * (2 * a.half);
        const SineCosine angle_of = sine_cosine(angle);
        w.store(row, at, angle_of.cosine * factor, mask);
        w.store(row + a.half, at, angle_of.sine * factor, mask);
      }
    }
  }

 private:
  static TILE_FN float grown_factor(const Args& a, int32_t position) {
    const int32_t spans = position / a.growth_context;  // whole contexts before the position
    return static_cast<float>(a.attention_factor * (1 + a.growth_beta * log_of(1.0 + spans)));
  }
  /// Returns the positions that the frequencies `at` multiply.
  static TILE_FN Lanes<float> position_of(const Args& a, int t, const Lanes<int>& at, const Lanes<bool>& mask,
                                          Warp& w) {
    const Lanes<int> axis = w.load(reinterpret_cast<const int32_t*>(a.axes), at, mask);
    return convert<float>(w.load(a.positions + int64_t{t} * a.num_axes, axis, mask));
  }
  /// Returns the frequencies of a base that grows with the length of the sequence.
  static TILE_FN Lanes<float> dynamic_frequency(const Args& a, int32_t length, const Lanes<int>& at) {
    const double dim = 2.0 * a.half;
    const double grown = a.factor * length / a.dynamic_context - (a.factor - 1);
    const double log_base = log_of(a.base) + dim / (dim - 2) * log_of(grown);
    return convert<float>(exp_of(convert<double>(at) * (log_base / -a.half)));
  }
};

/// Rotates the pairs (i, i + half) of every head; y may be x.
struct Rope {
  struct Args {
    const float* x;
    const float* table;
    float* y;
    int32_t cols, head_dim, half;
  };
  static constexpr bool kLoads = false, kLoaderWaits = false;
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables&, Warp& w, RingPosition&) {
    const int heads = (tile.col_end - tile.col_begin) / a.head_dim, all = (tile.row_end - tile.row_begin) * heads;
    for (int n = w.index(); n < all; n += kConsumerWarps) {
      const int row = tile.row_begin + n / heads;
      const float* table = a.table + int64_t{row} * (2 * a.half);
      const int64_t head = int64_t{row} * a.cols + tile.col_begin + n % heads * a.head_dim;
      for (int i = 0; i < a.half; i += kWarpLanes) {
        const Lanes<int> at = w.lane() + i;
        const Lanes<bool> mask = at < Lanes<int>(a.half);
        const Lanes<float> cosine = w.load(table, at, mask), sine = w.load(table + a.half, at, mask);
        const Lanes<float> low = w.load(a.x + head, at, mask), high = w.load(a.x + head + a.half, at, mask);
        w.store(a.y + head, at, low * cosine - high * sine, mask);
        w.store(a.y + head + a.half, at, high * cosine + low * sine, mask);
      }
      for (int i = 2 * a.half; i < a.head_dim; i += kWarpLanes) {
        const Lanes<int> at = w.lane() + i;
        const Lanes<bool> mask = at < Lanes<int>(a.head_dim);
        w.store(a.y + head, at, w.load(a.x + head, at, mask), mask);
      }
    }
  }
};

}  // namespace redline::tiles
