// Elementwise ops: add, scale, soft_cap, silu_mul, activation and gated_activation.
#pragma once

#include "kernels/tiles/kernel.h"
#include "tensor/activation.h"

namespace redline::tiles {

/// Returns f(x) as defined in tensor/activation.h.
TILE_FN Lanes<float> activate(Activation kind, const Lanes<float>& x) {
  switch (kind) {
    case Activation::kSilu: return x / (exp_of(-x) + 1.0f);
    case Activation::kGelu: return x * erfc_of(x * -0.70710678f) * 0.5f;
    case Activation::kGeluTanh: return x * (tanh_of((x + x * x * x * 0.044715f) * 0.7978845608f) + 1.0f) * 0.5f;
    case Activation::kQuickGelu: return x / (exp_of(x * -1.702f) + 1.0f);
    case Activation::kRelu: return max_of(x, 0.0f);
    case Activation::kTanh: return tanh_of(x);
    case Activation::kTanh3: return tanh_of(x / 3.0f) * 3.0f;
  }
  return x;
}

TILE_FN Lanes<float> min_of(const Lanes<float>& x, float limit) { return -max_of(-x, -limit); }
TILE_FN Lanes<float> clamp(const Lanes<float>& x, float limit) { return max_of(min_of(x, limit), -limit); }

/// Computes y = f(a, b), all [rows, cols].
struct Elementwise {
  enum class Op : uint8_t { kAdd, kScale, kSoftCap, kActivation, kGated, kSigmoid };
  struct Args {
    Op op;
    Activation activation;
    /// The factor of kScale, the cap of kSoftCap, or for kGated the limit of gate and value (0: none).
    float number;
    int32_t cols;
    int32_t a_stride, b_stride;  ///< elements between rows; 0: all rows use the first
    int32_t a_begin;             ///< first column of a
    const float* a;              ///< first operand; for kGated the gate
    const float* b;              ///< second operand of kAdd and kGated; for kSigmoid the gate
    float* y;
  };
  static constexpr bool kLoads = false, kLoaderWaits = false;
  static TILE_FN void compute(const Args& args, const TileRange& tile, const StepTables&, Warp& w, RingPosition&) {
    each_element(tile, w, [&](int row, const Lanes<int>& col, const Lanes<bool>& mask) {
      const Lanes<float> a = w.load(args.a + args.a_begin + int64_t{row} * args.a_stride, col, mask);
      const Lanes<float> b = args.b ? w.load(args.b + int64_t{row} * args.b_stride, col, mask) : Lanes<float>(0.0f);
      Lanes<float> y = a;
      switch (args.op) {
        case Op::kAdd: y = a + b; break;
        case Op::kScale: y = a * args.number; break;
        case Op::kSoftCap: y = tanh_of(a / args.number) * args.number; break;
        case Op::kActivation: y = activate(args.activation, a); break;
        case Op::kSigmoid: y = a / (exp_of(-b) + 1.0f); break;
        case Op::kGated:
          if (args.number > 0) y = activate(args.activation, min_of(a, args.number)) * (clamp(b, args.number) + 1.0f);
          else y = activate(args.activation, a) * b;
          break;
      }
      w.store(args.y + int64_t{row} * args.cols, col, y, mask);
    });
  }
};

}  // namespace redline::tiles
