// The up projection of low-rank adapters, for linear and conv2d.
#pragma once

#include "graph/adapters.h"
#include "kernels/cpu/cpu_kernels.h"

namespace redline {

/// Kernels for the up matrices, shared by linear and conv2d adapters.
struct AdapterUp {
  DType type = DType::kF32;
  void (*by_rows)(const LinearArgs&) = nullptr;
  void (*by_tiles)(const LinearArgs&) = nullptr;  ///< for x in a tiled layout, or nullptr
  void (*prepare_tiles)(const PrepareXArgs&) = nullptr;

  static AdapterUp choose(const CpuKernels& table, bool exact_f32);
  /// Bytes of `buffer` for this many rows.
  int64_t buffer_bytes(int64_t rows, int64_t max_rank) const {
    return by_tiles ? activation_layout_bytes(ActivationLayout::kBf16Tiled, rows, max_rank) : 0;
  }
  /// y = residual + t up^T for the rows and columns in `args`. Sets x, weight, in_features and scratch of `args`; rows
  /// of t are `t_stride` apart. `tiles` must be the same for all calls of a step and stage.
  void add(LinearArgs args, const AdapterPart& part, const float* t, int64_t t_stride, bool tiles, void* buffer) const;
};

}  // namespace redline
