// Convolutions of any number of axes: patches of their input, and depthwise convolutions.
#pragma once

#include <cstdint>

#include "tensor/activation_layout.h"
#include "tensor/conv_padding.h"
#include "tensor/dtype.h"
#include "tensor/row_panel.h"

namespace redline {

/// One axis. Tap j of output q is at position q * step + first + j * tap_step of the input. A transposed convolution
/// consists of such convolutions: one for each remainder of the output's position divided by the stride.
struct ConvAxisArgs {
  int64_t in = 1, out = 1;
  int64_t taps = 1, step = 1, first = 0, tap_step = 1;
  /// Size of the axis that positions refer to: `in`, or another size to which the input is resized by nearest
  /// neighbour.
  int64_t size = 1;
  ConvPadding padding = ConvPadding::kZeros;
};

/// The input of one item.
struct ConvInput {
  const float* x;        ///< [in of axis 0, of axis 1, of axis 2, pixel_stride]
  int64_t pixel_stride;  ///< elements between pixels
  int64_t channels;      ///< channels of a pixel that the call reads
  ConvAxisArgs axes[3];  ///< outermost first
  /// [num_leading, in of the later axes, pixel_stride]: positions -num_leading .. -1 of axis `leading_axis`, or nullptr
  const float* leading = nullptr;
  int64_t num_leading = 0;
  int leading_axis = 0;
};

/// Order of the elements of a patch.
enum class ConvPatchOrder : uint8_t {
  kTaps,      ///< [taps][channels], or [channels / 32][taps][32] where channels are a multiple of 32
  kChannels,  ///< [channels][taps], the order of checkpoints; for kF32 only
};

/// Arguments of patches: row r is the patch of the output q = (r / (out1 * out2), r / out2 % out1, r % out2). They are
/// written as ConvPatchesArgs says (conv2d.h), with its `form`, `row_begin`, `row_end`, `out_row` and `out`; its other
/// members are not read.
struct ConvGather {
  ConvInput input;
  ConvPatchOrder order = ConvPatchOrder::kTaps;
  void* scratch;  ///< kScratchBytes; has room for kConvMaxTaps taps
};
inline constexpr int64_t kConvMaxTaps = int64_t{1} << 17;

/// Arguments of a depthwise convolution of channels [c_begin, c_end): y[q, c] = sum_j x[q, j, c] * w[j, c] (+ bias[c])
/// (+ residual[q, c]) in float32. Products are summed tap after tap, so an output has the same bits in every call.
struct ConvDepthwise {
  ConvInput input;
  const void* weight;          ///< [taps][channels]
  DType weight_type;           ///< kF32, kF16 or kBF16
  const float* bias;           ///< [channels] or nullptr
  float* y;                    ///< output q = (0, 0, 0)
  int64_t y_strides[3];        ///< elements between the outputs of each axis
  const float* residual;       ///< layout of y, may be y; or nullptr
  int64_t row_begin, row_end;  ///< as in ConvGather
  int64_t c_begin, c_end;
  void* scratch;  ///< kScratchBytes; has room for kConvMaxTaps taps
};

}  // namespace redline
