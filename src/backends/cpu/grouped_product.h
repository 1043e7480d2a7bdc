// Helpers of lowerings whose tasks multiply groups of rows, each with a matrix of its own: the kernels of one matrix
// per group, the conversion of a group's rows inside a task, and the queue from which tasks take work.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "backends/cpu/linear_lowering.h"
#include "tensor/packed_weight.h"

namespace redline {

/// A counter from which the tasks of one stage take the numbers 0, 1, 2, .. until no work is left. Where the amount of
/// work depends on the data, tasks cannot be assigned to workers beforehand.
class WorkQueue {
 public:
  int64_t next() const { return next_.fetch_add(1, std::memory_order_relaxed); }
  /// Must be called once by each of the `tasks` tasks of a step, at its end. The last call resets the queue for the
  /// next step.
  void leave(int tasks) const {
    if (left_.fetch_add(1, std::memory_order_acq_rel) + 1 < tasks) return;
    next_.store(0, std::memory_order_relaxed);
    left_.store(0, std::memory_order_relaxed);
  }

 private:
  mutable std::atomic<int64_t> next_{0};
  mutable std::atomic<int> left_{0};
};

/// Number of rows that are multiplied at once. A multiple of kXTileRows.
inline constexpr int64_t kGroupBlockRows = 256;

/// The matrices [features, in_features] of all groups, which have one type.
struct GroupMatrices {
  LinearKernels kernels;
  std::vector<const void*> weights;
  const float* bias = nullptr;  ///< [groups, features]
  int64_t features = 0, in_features = 0;
  int64_t col_bytes = 0;  ///< bytes of a column of features in a packed weight
  void (*prepare[kNumActivationLayouts])(const PrepareXArgs&) = {};

  /// Collects the matrices of `groups` inputs from input `first` on.
  static Result<GroupMatrices> make(LowerContext& c, size_t first, size_t groups) {
    GroupMatrices m;
    const ValueInfo& w = c.in(first);
    REDLINE_ASSIGN(m.kernels, kernels_of_weight(c, w));
    m.features = w.shape[0].constant();
    m.in_features = w.shape[1].constant();
    m.col_bytes = packed_col_bytes(w);
    for (size_t i = 0; i < groups; ++i) {
      REDLINE_ASSIGN(const void* weight, c.packed_weight(first + i));
      m.weights.push_back(weight);
    }
    std::copy(std::begin(c.kernels().prepare_x), std::end(c.kernels().prepare_x), m.prepare);
    for (int i = 0; i < m.kernels.layouts.count; ++i) {
      const ActivationLayout layout = m.kernels.layouts.at[i].layout;
      if (layout != ActivationLayout::kF32 && !m.prepare[static_cast<size_t>(layout)])
        return unsupported("no kernel prepares x as {}", activation_layout_name(layout));
    }
    return m;
  }

  /// Returns the bytes of prepared() for up to `rows` rows, rounded up to cache lines.
  int64_t prepared_bytes(int64_t rows) const {
    int64_t bytes = activation_layout_bytes(ActivationLayout::kF32, rows, in_features);
    for (int i = 0; i < kernels.layouts.count; ++i)
      bytes = std::max(bytes, activation_layout_bytes(kernels.layouts.at[i].layout, rows, in_features));
    return (bytes + 63) / 64 * 64;
  }

  /// Converts rows to the layout of the kernel for a group of `group_rows` rows. If that is float32 and the rows are
  /// `stride` elements apart, returns the rows themselves (stride 0: they are not evenly spaced); otherwise converts to
  /// `buffer`. row_of(r) is row r < rows.
  struct Prepared {
    const void* x;
    int64_t stride;
  };
  template <class RowOf>
  Prepared prepared(int64_t group_rows, int64_t rows, int64_t stride, const RowOf& row_of, void* buffer) const {
    const ActivationLayout layout = kernels.layouts.for_rows(group_rows);
    if (layout == ActivationLayout::kF32) {
      if (stride > 0 || rows == 1) return {row_of(0), stride > 0 ? stride : in_features};
      for (int64_t r = 0; r < rows; ++r)
        std::memcpy(static_cast<float*>(buffer) + r * in_features, row_of(r),
                    static_cast<size_t>(in_features) * sizeof(float));
      return {buffer, in_features};
    }
    for (int64_t r = 0; r < rows; ++r)
      prepare[static_cast<size_t>(layout)]({.x = row_of(r),
                                            .x_stride = in_features,
                                            .cols = in_features,
                                            .row_begin = r,
                                            .row_end = r + 1,
                                            .col_begin = 0,
                                            .col_end = in_features,
                                            .out = buffer});
    return {buffer, in_features};
  }

  /// Multiplies rows of a group. `y` is the address that column 0 of the first row would have.
  void multiply(size_t group, int64_t group_rows, const Prepared& x, int64_t rows, int64_t begin, int64_t end, float* y,
                int64_t y_stride, void* scratch) const {
    kernels.for_rows(group_rows)({.x = x.x,
                                  .x_stride = x.stride,
                                  .rows = rows,
                                  .weight = weights[group],
                                  .out_features = features,
                                  .in_features = in_features,
                                  .n_begin = begin,
                                  .n_end = end,
                                  .bias = bias ? bias + static_cast<int64_t>(group) * features : nullptr,
                                  .residual = nullptr,
                                  .y = y,
                                  .y_stride = y_stride,
                                  .scratch = scratch});
  }
};

/// Columns of column tile i of n, cut at row panels of the packed weight.
struct ColumnRange {
  int64_t begin, end;
};
inline ColumnRange column_tile(int64_t features, int64_t i, int64_t n) {
  const int64_t panels = (features + kRowPanelRows - 1) / kRowPanelRows;
  return {std::min(features, panels * i / n * kRowPanelRows), std::min(features, panels * (i + 1) / n * kRowPanelRows)};
}
/// Returns the maximum number of column tiles that are large enough for a task of their own.
inline int64_t max_column_tiles(int64_t features, int64_t col_bytes) {
  constexpr int64_t kMinBytes = 32 << 10;
  return std::clamp<int64_t>(features * col_bytes / kMinBytes, 1, (features + kRowPanelRows - 1) / kRowPanelRows);
}

}  // namespace redline
