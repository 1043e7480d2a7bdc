// Low-rank adapters of linear ops and convolutions: x down^T ("shrink"), then up ("expand"), as in Punica's SGMV.
#pragma once

#include <array>
#include <vector>

#include "backends/cpu/lowering.h"
#include "graph/adapters.h"
#include "kernels/cpu/linear/linear_prefetch.h"
#include "tensor/lora_up.h"
#include "tensor/packed_weight.h"

namespace redline {

/// Kernels for the up matrices. Linear and conv2d adapters share them.
struct AdapterExpand {
  DType type = DType::kF32;  ///< type of packed up matrices; kI8: tensor/lora_up.h
  void (*by_rows)(const LinearArgs&) = nullptr;
  void (*by_tiles)(const LinearArgs&) = nullptr;  ///< kernel for x in a tiled layout, or nullptr
  void (*prepare_tiles)(const PrepareXArgs&) = nullptr;

  /// Chooses the kernels. Up matrices are stored in 8 bits (tensor/lora_up.h) unless exact_f32 is set or a tile unit
  /// multiplies bfloat16, because with many adapters a step takes as long as reading them.
  static AdapterExpand choose(const CpuKernels& table, bool exact_f32);
  /// Chooses kernels without 8 bits, for sites whose products are as large as those of the op.
  static AdapterExpand choose_plain(const CpuKernels& table, bool exact_f32);
  /// Returns the bytes of `rows` rows of a packed up matrix.
  int64_t up_bytes(int64_t rows, int64_t rank) const {
    return type == DType::kI8 ? lora_up_bytes(rows, rank) : packed_bytes(type, rows, rank);
  }
  /// Returns the bytes of `buffer` for calls of up to `rows` rows.
  int64_t buffer_bytes(int64_t rows, int64_t max_rank) const {
    return by_tiles ? activation_layout_bytes(ActivationLayout::kBf16Tiled, rows, max_rank) : 0;
  }
  /// Computes y += gate (t up^T) for the rows and columns in `args`; sets x, weight, in_features, bias and residual of
  /// `args`. Rows of t are `t_stride` apart. The kernel depends on `segment_rows`, so that a segment has the same bits
  /// however its rows are split among calls.
  void add(LinearArgs args, const AdapterFactors& factors, const float* t, int64_t t_stride, int64_t segment_rows,
           void* buffer) const;
  /// Computes y += gate scale bias for the rows and columns in `args`.
  static void add_bias(const LinearArgs& args, const AdapterFactors& factors, float scale);
};

struct AdapterShrink;  // linear_adapters.cc

/// Adapters of the matrices of one linear op. The tasks of the op compute x down^T together: after its first product,
/// each task takes parts of it until none are left. Then each task adds the up projection to the columns that it
/// computes.
class LinearAdapters {
 public:
  struct Matrix {
    std::shared_ptr<AdapterSite> site;  ///< nullptr: no site
    int64_t first_feature = 0;          ///< row of the site's matrix that is the op's first row; whole row panels
  };
  /// Adds operands and buffer space after the existing scratch to `stage`, whose parameters hold this object.
  /// `layouts`: the layouts in which the op reads input 0. Does nothing without sites.
  /// unsupported: no kernel multiplies these layouts with adapters.
  Status lower(LowerContext& c, const std::vector<Matrix>& matrices, const ActivationLayouts& layouts,
               LoweredStage& stage);

  /// Returns true if any row of the step has an adapter at any of the matrices.
  bool active(const StepContext& step) const;
  /// Calls kernel(args), which must have no epilogue of its own, then add(). Passes the factors to the kernel for
  /// prefetching.
  void multiply(void (*kernel)(const LinearArgs&), LinearArgs args, const StepContext& step, size_t matrix,
                int64_t first_row, WorkerContext& worker) const;
  /// Computes y += gate (t up^T) for args.rows rows and columns [args.n_begin, args.n_end) of `matrix`. The first row
  /// of args.y is row `first_row` of the step.
  void add(const StepContext& step, size_t matrix, const LinearArgs& args, int64_t first_row,
           WorkerContext& worker) const;

 private:
  static constexpr size_t kNoGroup = ~size_t{0};
  struct Place {
    size_t group;  ///< index of the matrix's group in AdapterShrink
    int64_t first_feature;
  };
  struct Factors;
  /// Collects the up matrices that args.rows rows from `first_row` of the step and the columns of `args` read.
  void add_ups(const Place& place, const LinearArgs& args, int64_t first_row, Factors& factors) const;
  /// Adds the up projection when x down^T is complete.
  void expand(const Place& place, const LinearArgs& args, int64_t first_row, WorkerContext& worker) const;

  std::vector<Place> places_;  ///< place of each matrix
  AdapterExpand expand_;
  std::shared_ptr<AdapterShrink> shrink_;  ///< nullptr: no sites
  int64_t buffer_at_ = 0;
};

}  // namespace redline
