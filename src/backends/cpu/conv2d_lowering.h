// Helpers of the two lowerings of a SquareConv2d (graph/ops/convolution.h): im2col patches for products of `linear`,
// and direct convolution on the tile unit (AMX), by bfloat16 dot products or in float32.
#pragma once

#include "backends/cpu/cpu_target.h"
#include "backends/cpu/linear_adapters.h"
#include "backends/cpu/lowering.h"
#include "graph/ops/convolution.h"
#include "kernels/cpu/convolution/conv2d.h"

namespace redline {

/// Returns the grid of a convolution: tasks have whole lines of the last axis of all items (any pixels if there is one
/// axis), and columns in panels of 16. Convolutions of one output shape have equal grids, whichever kernels they use,
/// so that one waits for the other tile by tile.
TaskGrid convolution_grid(const LowerContext& c, const ConvolutionOpAttrs& op);

/// Buffer space and kernels for the adapters of a convolution.
struct Conv2dAdapters {
  AdapterExpand up;
  int64_t at = 0;     ///< offset in WorkerContext::buffer of x down^T for some rows; its prepared copy follows
  int64_t bytes = 0;  ///< size of the float32 copy of x down^T

  /// Reserves space for at most `max_rows` rows at a time. It starts after the first `buffer_bytes` bytes of the
  /// buffer; `buffer_bytes` becomes the size of both together.
  void reserve(const LowerContext& c, AdapterSite& site, int64_t max_rows, int64_t& buffer_bytes);
  float* rows(const WorkerContext& worker) const {
    return reinterpret_cast<float*>(static_cast<uint8_t*>(worker.buffer) + at);
  }
  /// Computes y += (t scale) up^T for `num_rows` rows starting at `y`, columns of the tile. t is rows(), which this
  /// function multiplies by `scale`.
  void add_up(const AdapterFactors& factors, float scale, const Tile& tile, int64_t num_rows, int64_t segment_rows,
              int64_t out_features, float* y, WorkerContext& worker) const;
};

/// Sizes of a SquareConv2d in one step.
struct Conv2dGeometry {
  int64_t batch, in_height, in_width, out_height, out_width;

  Conv2dGeometry(const SquareConv2d& a, const SymbolValues& sizes)
      : batch(a.batch.eval(sizes)), in_height(a.in_height.eval(sizes)), in_width(a.in_width.eval(sizes)),
        out_height(a.out_height.eval(sizes)), out_width(a.out_width.eval(sizes)) {}
  int64_t pixels() const { return out_height * out_width; }
  int64_t in_pixels() const { return in_height * in_width; }
};

/// Parameters of both lowerings. WorkerContext::buffer holds block_bytes of patches or input rows, then item biases,
/// then the norm's scales and shifts, for up to kConvMaxItems items, then the adapters' space.
struct Conv2dParams {
  ConvolutionOpAttrs op;
  SquareConv2d square = {};
  void (*add)(const AddArgs&) = nullptr;
  int64_t channels = 0, out_features = 0;
  int64_t block_bytes = 0;
  const void* weight = nullptr;
  const float* bias = nullptr;  ///< or nullptr
  Conv2dAdapters adapters;
  Operand<const float> x, item_bias, residual;  ///< the last two null if absent
  Operand<float> y;

  /// Sets the members that do not depend on the kernels.
  Status init(LowerContext& c);
  /// Declares the operands and the buffer; block_bytes must be set.
  void add_operands(const LowerContext& c, LoweredStage& stage);
  /// Returns the bias of the rows of `count` items, [count, out_features]; without an item bias, the bias of all items.
  const float* bias_of_items(int64_t item, int64_t count, const WorkerContext& worker) const;
  /// Returns the kernel arguments for an item's input.
  ConvPatchesArgs input_of(const Conv2dGeometry& s, int64_t item) const;
  float* item_buffer(const WorkerContext& worker) const {
    return reinterpret_cast<float*>(static_cast<uint8_t*>(worker.buffer) + block_bytes);
  }
};

Status lower_conv2d_patches(LowerContext& c);
Status lower_conv2d_tiles(LowerContext& c, ConvMethod method);

}  // namespace redline
