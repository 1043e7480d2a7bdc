// Helpers of the lowerings of convolutions of any number of axes: patches for products of `linear`, and depthwise
// kernels.
#pragma once

#include <array>
#include <vector>

#include "backends/cpu/lowering.h"
#include "backends/cpu/recurrent_place.h"
#include "graph/ops/convolution.h"
#include "kernels/cpu/convolution/conv2d.h"
#include "kernels/cpu/convolution/convolution.h"

namespace redline {

/// The outputs of a convolution that read the input at the same relative positions. A transposed convolution has a
/// phase for each remainder of the output's position divided by the stride, on each axis, and so needs no scattered
/// sums (Shi et al. 2016, arXiv:1609.07009). Other convolutions have one phase. The rows of a phase are its outputs in
/// order.
struct ConvPhase {
  struct Axis {
    int64_t taps, step, first, tap_step;  ///< as in ConvAxisArgs
    int64_t out_first, out_step;          ///< output q of the phase is output out_first + q * out_step
    int64_t tap_first, tap_stride;        ///< tap j of the phase is tap tap_first + j * tap_stride of the kernel
  };
  std::array<Axis, kConvMaxAxes> axes;

  int64_t num_taps() const { return axes[0].taps * axes[1].taps * axes[2].taps; }
  /// sizes() returns the number of outputs on each axis, pixels() the number of outputs of an item.
  std::array<int64_t, kConvMaxAxes> sizes(const ConvolutionGeometry& s) const;
  int64_t pixels(const ConvolutionGeometry& s) const;
  /// Returns the row of the convolution's output that holds row `row` of the phase.
  int64_t output_row(const ConvolutionGeometry& s, int64_t row) const;
  /// Returns the number of rows of the phase that lie before row `output` of the convolution's output.
  int64_t rows_before(const ConvolutionGeometry& s, int64_t output) const;
};
std::vector<ConvPhase> conv_phases(const ConvolutionAttrs& attrs);

/// Parameters of both lowerings.
struct ConvolutionParams {
  ConvolutionOpAttrs op;
  std::array<ConvAxis, kConvMaxAxes> axes;
  std::vector<ConvPhase> phases;
  void (*add)(const AddArgs&) = nullptr;
  int64_t channels = 0, out_features = 0;
  const float* bias = nullptr;  ///< or nullptr
  RecurrentPlace leading;
  Operand<const float> x, item_bias, residual;  ///< the last two null if absent
  Operand<float> y;

  /// Sets the members that do not depend on the kernels. unsupported: too many taps. invalid_argument: the leading
  /// state is too small for the bounds.
  Status init(LowerContext& c);
  /// Declares the operands of the stage that computes the output.
  void add_operands(const LowerContext& c, LoweredStage& stage);
  /// Returns the input of an item for a phase, with all channels.
  ConvInput input_of(const ConvolutionGeometry& s, const ConvPhase& phase, int64_t item, const StepContext& step) const;
  /// Returns the bias of an item, [out_features]; `buffer` has that many floats.
  const float* bias_of_item(int64_t item, float* buffer) const;
  int kept_axis() const { return kConvMaxAxes - static_cast<int>(op.axes.size()); }
};

/// Adds the stage that stores the last positions of a chunk in the leading state, if the op has one. It runs after the
/// stage that computes the output, because both may use the same page.
void add_leading_stage(LowerContext& c, const ConvolutionParams& params);

Status lower_convolution_gather(LowerContext& c);
Status lower_convolution_depthwise(LowerContext& c);

}  // namespace redline
