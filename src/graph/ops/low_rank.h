#pragma once

#include "graph/adapters.h"
#include "kernels/cpu/cpu_kernels.h"

namespace redline {

struct LowRankAttrs {
  std::shared_ptr<AdapterSlot> slot;
};

/// y += sum over the slot's parts of scale * (x down^T) up^T, in place; nothing where the slot is empty.
///
/// inputs   x [rows, in_features] in the forms that the product beside it reads, that product's weight (looked at for
///          its type alone), y [rows, out_features]
/// outputs  y; x down^T [rows, max_rank], scaled
extern const OpDef kLowRank;

/// How the up matrices are multiplied, beside products and convolutions alike.
struct AdapterUp {
  DType type = DType::kF32;
  void (*by_rows)(const LinearArgs&) = nullptr;
  void (*by_tiles)(const LinearArgs&) = nullptr;  ///< with x as tiles, or nullptr
  void (*prepare_tiles)(const PrepareXArgs&) = nullptr;

  static AdapterUp choose(const CpuKernels& table, bool exact_f32);
  /// Bytes of `buffer` for so many rows.
  int64_t buffer_bytes(int64_t rows, int64_t max_rank) const {
    return by_tiles ? x_form_bytes(XForm::kTiles, rows, max_rank) : 0;
  }
  /// y = residual + t up^T for `args`' rows and columns, of which x, weight, in_features and scratch are set here; t has
  /// `t_stride` from row to row. All calls of a step and stage have the same `tiles`.
  void add(LinearArgs args, const AdapterPart& part, const float* t, int64_t t_stride, bool tiles, void* buffer) const;
};

}  // namespace redline
