// group_norm (graph/ops/group_norm.h): statistics of parts of an item's pixels, from which each channel gets a factor
// and a term; modulate.h applies them.
#pragma once

#include "kernels/tiles/kernel.h"
#include "tensor/group_norm_parts.h"

namespace redline::tiles {

/// Computes statistics: row item * kGroupNormMaxParts + part gets mean and sum of squared deviations of every group.
struct GroupNormSums {
  struct Args {
    const float* x;
    float* y;
    int32_t channels, groups;
    int32_t pixels;  ///< pixels of an item; an index in StepTables::rows
  };
  static constexpr bool kLoads = false, kLoaderWaits = false;
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables& step, Warp& w, RingPosition&) {
    const int pixels = step.rows[a.pixels], all = (tile.row_end - tile.row_begin) * a.groups;
    for (int i = w.index(); i < all; i += kConsumerWarps) {
      const int row = tile.row_begin + i / a.groups, part = row % static_cast<int>(kGroupNormMaxParts);
      if (part >= group_norm_parts(pixels)) continue;
      const int64_t begin = group_norm_part_begin(pixels, part), end = group_norm_part_begin(pixels, part + 1);
      sum(a, row, i % a.groups, row / kGroupNormMaxParts * pixels + begin, static_cast<int>(end - begin), w);
    }
  }

 private:
  static TILE_FN void sum(const Args& a, int row, int group, int64_t first, int pixels, Warp& w) {
    const int width = a.channels / a.groups, n = pixels * width;
    const float* x = a.x + first * a.channels + int64_t{group} * width;
    const auto load = [&](int i, Lanes<bool>& mask) {
      const Lanes<int> at = w.lane() + i;
      mask = at < Lanes<int>(n);
      return w.load(x, convert<int64_t>(at / width) * int64_t{a.channels} + convert<int64_t>(at % width), mask);
    };
    Lanes<bool> mask = false;
    Lanes<float> sum = 0.0f, squares = 0.0f;
    for (int i = 0; i < n; i += kWarpLanes) sum = sum + load(i, mask);
    const Lanes<float> mean = warp_sum(w, sum) / static_cast<float>(n);
    for (int i = 0; i < n; i += kWarpLanes) {
      const Lanes<float> x_i = load(i, mask), d = select(mask, x_i - mean, 0.0f);
      squares = squares + d * d;
    }
    const Lanes<float> all = warp_sum(w, squares);
    w.store(a.y + (int64_t{row} * a.groups + group) * 2, w.lane(), select(w.lane() == Lanes<int>(0), mean, all),
            w.lane() < Lanes<int>(2));
  }
};

/// Merges the parts in order. y[item] gets the factors of all channels, then their terms: the norm is x * factor +
/// term.
struct GroupNormScale {
  struct Args {
    const float* sums;
    const float* weight;
    const float* bias;
    float* y;
    int32_t channels, groups;
    int32_t pixels;
    float eps;
  };
  static constexpr bool kLoads = false, kLoaderWaits = false;
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables& step, Warp& w, RingPosition&) {
    const int pixels = step.rows[a.pixels], width = a.channels / a.groups;
    const int chunks = (a.groups + kWarpLanes - 1) / kWarpLanes, all = (tile.row_end - tile.row_begin) * chunks;
    for (int i = w.index(); i < all; i += kConsumerWarps) {
      const int item = tile.row_begin + i / chunks;
      const Lanes<int> group = w.lane() + i % chunks * kWarpLanes;
      const Lanes<bool> mask = group < Lanes<int>(a.groups);
      const float* sums = a.sums + int64_t{item} * kGroupNormMaxParts * 2 * a.groups;
      Lanes<double> mean = 0.0, deviations = 0.0;
      double n = 0;
      for (int part = 0; part < group_norm_parts(pixels); ++part) {
        const double more =
            double(group_norm_part_begin(pixels, part + 1) - group_norm_part_begin(pixels, part)) * width;
        const Lanes<int> at = (group + part * a.groups) * 2;
        const Lanes<double> delta = convert<double>(w.load(sums, at, mask)) - mean;
        deviations = deviations + convert<double>(w.load(sums, at + 1, mask)) + delta * delta * (n * more / (n + more));
        n += more;
        mean = mean + delta * (more / n);
      }
      const Lanes<double> inverse =
          convert<double>(Lanes<float>(1.0f) / sqrt_of(convert<float>(deviations / n + static_cast<double>(a.eps))));
      float* y = a.y + int64_t{item} * 2 * a.channels;
      for (int c = 0; c < width; ++c) {
        const Lanes<int> channel = group * width + c;
        const Lanes<double> factor = convert<double>(w.load(a.weight, channel, mask)) * inverse;
        w.store(y, channel, convert<float>(factor), mask);
        w.store(y, channel + a.channels, convert<float>(convert<double>(w.load(a.bias, channel, mask)) - mean * factor),
                mask);
      }
    }
  }
};

}  // namespace redline::tiles
