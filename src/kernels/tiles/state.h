// Arithmetic on the values that a step cache keeps of a denoiser (diffusion/step_cache): weighted sums, and distances.
#pragma once

#include "kernels/tiles/kernel.h"

namespace redline::tiles {

/// Computes to = base + sum of weights[k] * tensors[k], in float32 and in the order of k. Task i has the kBlock
/// elements from i kBlock on.
struct StateSum {
  static constexpr int kMaxTensors = 8, kBlock = 1 << 15;
  struct Args {
    float* to;
    const float* base;  ///< nullptr: zeros
    const float* tensors[kMaxTensors];
    float weights[kMaxTensors];
    int64_t elements;
    int32_t num_tensors;
  };
  static constexpr bool kLoads = false, kLoaderWaits = false;
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables&, Warp& w, RingPosition&) {
    const int64_t begin = int64_t{tile.index} * kBlock;
    const int left = static_cast<int>(a.elements - begin < kBlock ? a.elements - begin : kBlock);
    for (int at = w.index() * kWarpLanes; at < left; at += kConsumerWarps * kWarpLanes) {
      const Lanes<int> i = w.lane() + at;
      const Lanes<bool> mask = i < Lanes<int>(left);
      Lanes<float> sum = 0.0f;
      for (int k = 0; k < a.num_tensors; ++k)
        sum = sum + Lanes<float>(a.weights[k]) * w.load(a.tensors[k] + begin, i, mask);
      if (a.base) sum = w.load(a.base + begin, i, mask) + sum;
      w.store(a.to + begin, i, sum, mask);
    }
  }
};

/// Computes sums of |a - b|, or of (a - b) (c - d): differences in float32, sums in float64. Warp j of task i stores
/// its part in sums[8 i + j], which the host adds in this order.
struct StateMeasure {
  static constexpr int kBlock = StateSum::kBlock;
  struct Args {
    const float* a;
    const float* b;  ///< nullptr: zeros
    const float* c;  ///< nullptr: the sum of |a - b|
    const float* d;  ///< nullptr: zeros
    double* sums;
    int64_t elements;
  };
  static constexpr bool kLoads = false, kLoaderWaits = false;
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables&, Warp& w, RingPosition&) {
    const int64_t begin = int64_t{tile.index} * kBlock;
    const int left = static_cast<int>(a.elements - begin < kBlock ? a.elements - begin : kBlock);
    Lanes<double> sum = 0.0;
    for (int at = w.index() * kWarpLanes; at < left; at += kConsumerWarps * kWarpLanes) {
      const Lanes<int> i = w.lane() + at;
      const Lanes<bool> mask = i < Lanes<int>(left);
      const Lanes<float> x = difference(a.a, a.b, begin, i, mask, w);
      if (a.c) sum = sum + convert<double>(x) * convert<double>(difference(a.c, a.d, begin, i, mask, w));
      else sum = sum + convert<double>(max_of(x, -x));
    }
    for (int distance = kWarpLanes / 2; distance > 0; distance /= 2) sum = sum + w.shuffle_xor(sum, distance);
    w.store(a.sums + int64_t{tile.index} * kConsumerWarps, Lanes<int>(w.index()), sum, w.lane() == Lanes<int>(0));
  }

 private:
  static TILE_FN Lanes<float> difference(const float* a, const float* b, int64_t begin, const Lanes<int>& i,
                                         const Lanes<bool>& mask, Warp& w) {
    const Lanes<float> x = w.load(a + begin, i, mask);
    return b ? x - w.load(b + begin, i, mask) : x;
  }
};

}  // namespace redline::tiles
