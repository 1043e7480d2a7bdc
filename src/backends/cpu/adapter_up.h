// The second product of a low-rank adapter, beside linear and conv2d.
#pragma once

#include "graph/adapters.h"
#include "kernels/cpu/cpu_kernels.h"

namespace redline {

/// How the up matrices are multiplied, beside products and convolutions alike.
struct AdapterUp {
  DType type = DType::kF32;
  void (*by_rows)(const LinearArgs&) = nullptr;
  void (*by_tiles)(const LinearArgs&) = nullptr;  ///< with x as tiles, or nullptr
  void (*prepare_tiles)(const PrepareXArgs&) = nullptr;

  static AdapterUp choose(const CpuKernels& table, bool exact_f32);
  /// Bytes of `buffer` for so many rows.
  int64_t buffer_bytes(int64_t rows, int64_t max_rank) const {
    return by_tiles ? activation_layout_bytes(ActivationLayout::kBf16Tiled, rows, max_rank) : 0;
  }
  /// y = residual + t up^T for `args`' rows and columns, of which x, weight, in_features and scratch are set here; t has
  /// `t_stride` from row to row. All calls of a step and stage have the same `tiles`.
  void add(LinearArgs args, const AdapterPart& part, const float* t, int64_t t_stride, bool tiles, void* buffer) const;
};

}  // namespace redline
