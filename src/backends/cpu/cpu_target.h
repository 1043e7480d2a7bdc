// The CPU target for passes and planning: a kernel table and a number of workers.
#pragma once

#include "graph/target.h"
#include "kernels/cpu/linear/linear_choice.h"

namespace redline {

class CpuTarget final : public Target {
 public:
  /// `kernels` must outlive the target. `exact_f32`: activations are never quantized or rounded.
  CpuTarget(const CpuKernels& kernels, bool exact_f32, int workers,
            BatchInvariance batch_invariance = BatchInvariance::kNone)
      : kernels_(kernels), exact_f32_(exact_f32), batch_invariance_(batch_invariance), workers_(workers) {}

  std::string name() const override;
  int workers() const override { return workers_; }
  ActivationLayouts activation_layouts(DType weight) const override;
  bool fuses_group_norm(const Graph& graph, const Op& conv) const override;
  int64_t head_dim_grain() const override { return kRowPanelRows; }
  int64_t max_prepared_row_bytes() const override { return kScratchBytes; }

 private:
  const CpuKernels& kernels_;
  bool exact_f32_;
  BatchInvariance batch_invariance_;
  int workers_;
};

/// The implementation of a convolution.
enum class ConvMethod {
  kPatches,    ///< a SquareConv2d as `linear` with im2col patches
  kBf16,       ///< a SquareConv2d directly, in bfloat16 on the tile unit (AMX) or by fast dot products
  kF32,        ///< a SquareConv2d directly, in float32
  kGather,     ///< any other as `linear` with patches
  kDepthwise,  ///< one group for each channel, in float32
};
ConvMethod choose_conv_method(const CpuKernels& kernels, bool exact_f32, const Graph& graph, const Op& convolution);

}  // namespace redline
