// Low-rank adapters of linear ops and convolutions: x down^T ("shrink"), then up ("expand"), as in Punica's SGMV.
#pragma once

#include <array>
#include <vector>

#include "backends/cpu/lowering.h"
#include "graph/adapters.h"
#include "kernels/cpu/linear_prefetch.h"
#include "tensor/lora_up.h"
#include "tensor/packed_weight.h"

namespace redline {

/// Kernels for the up matrices, shared by linear and conv2d adapters.
struct AdapterExpand {
  DType type = DType::kF32;  ///< of packed up matrices; kI8: tensor/lora_up.h
  void (*by_rows)(const LinearArgs&) = nullptr;
  void (*by_tiles)(const LinearArgs&) = nullptr;  ///< for x in a tiled layout, or nullptr
  void (*prepare_tiles)(const PrepareXArgs&) = nullptr;

  /// Where neither float32 is asked for nor a tile unit multiplies bfloat16, in 8 bits (tensor/lora_up.h): with many
  /// adapters a step takes as long as reading them.
  static AdapterExpand choose(const CpuKernels& table, bool exact_f32);
  /// Without 8 bits, for sites whose products are as large as those of the op.
  static AdapterExpand choose_plain(const CpuKernels& table, bool exact_f32);
  /// Bytes of `rows` rows of a packed up matrix.
  int64_t up_bytes(int64_t rows, int64_t rank) const {
    return type == DType::kI8 ? lora_up_bytes(rows, rank) : packed_bytes(type, rows, rank);
  }
  /// Bytes of `buffer` for calls of up to `rows` rows.
  int64_t buffer_bytes(int64_t rows, int64_t max_rank) const {
    return by_tiles ? activation_layout_bytes(ActivationLayout::kBf16Tiled, rows, max_rank) : 0;
  }
  /// y += gate (t up^T) for the rows and columns in `args`; sets x, weight, in_features, bias and residual of `args`.
  /// Rows of t are `t_stride` apart. The kernel depends on `segment_rows`, so that a segment has the same bits however
  /// its rows are split among calls.
  void add(LinearArgs args, const AdapterFactors& factors, const float* t, int64_t t_stride, int64_t segment_rows,
           void* buffer) const;
};

/// Adapters of the matrices of one linear op. A stage of its own computes x down^T for all matrices, once for all tasks
/// of the op; it returns at once if no row has an adapter. The op's tasks then add the up projection to the columns
/// that they compute.
class LinearAdapters {
 public:
  struct Matrix {
    std::shared_ptr<AdapterSite> site;  ///< nullptr: no site
    int64_t first_feature = 0;          ///< row of the site's matrix that is the op's first; whole row panels
  };
  /// Adds the shrink stage, and to `stage`, the op's own whose parameters hold this, the read of its result and buffer
  /// space after the existing scratch. `layouts`: those in which the op reads input 0. Without sites it does nothing.
  /// unsupported: no kernel multiplies these layouts with adapters.
  Status lower(LowerContext& c, std::vector<Matrix> matrices, const ActivationLayouts& layouts, LoweredStage& stage);

  /// Whether any row of the step has an adapter at any of the matrices.
  bool active(const StepContext& step) const;
  /// The products of an op share what later ops read first: product `index` of `count`, in the order of the tiles. A
  /// count of 0: none of it.
  struct Share {
    int64_t index = 0, count = 0;
  };
  /// kernel(args), which has no epilogue of its own, and add(). While the kernel computes, it prefetches what add()
  /// reads, and a share of the factors with which later ops with adapters begin. `rows`: of the step, by which the
  /// kernel is chosen.
  void multiply(void (*kernel)(const LinearArgs&), LinearArgs args, const StepContext& step, size_t matrix,
                int64_t first_row, int64_t rows, Share share, WorkerContext& worker) const;
  /// args.y, whose first row is row `first_row` of the step, += gate (t up^T) for args.rows rows and columns
  /// [args.n_begin, args.n_end) of `matrix`.
  void add(const StepContext& step, size_t matrix, const LinearArgs& args, int64_t first_row,
           WorkerContext& worker) const;

 private:
  /// For LinearArgs::end.
  struct Prefetch {
    static constexpr int64_t kMaxPieces = 96, kMaxBytes = 1 << 20;  // stay in L2 together with the product's own
    LinearPrefetch list;
    std::array<LinearPrefetch::Piece, kMaxPieces> pieces;
  };
  /// Empty if the product cannot prefetch.
  void prefetch(const StepContext& step, size_t matrix, const LinearArgs& args, int64_t first_row, int64_t rows,
                Share share, Prefetch& result) const;

  std::vector<Matrix> matrices_;
  std::vector<int64_t> t_begin_;  ///< by matrix: first column of t
  int64_t t_cols_ = 0;
  Operand<const float> t_;  ///< x down^T, the result of the shrink stage
  AdapterExpand expand_;
  ActivationLayouts layouts_;
  std::shared_ptr<AdapterShrink> shrink_;
  int64_t buffer_at_ = 0;
};

}  // namespace redline
