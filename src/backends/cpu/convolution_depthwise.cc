// Convolutions with one group for each channel, by kernels/cpu/convolution/conv_depthwise.h.
#include <algorithm>
#include <cstring>

#include "backends/cpu/conv2d_lowering.h"
#include "backends/cpu/convolution_lowering.h"
#include "graph/items.h"

namespace redline {
namespace {

struct ConvolutionDepthwiseParams : ConvolutionParams {
  void (*convolve)(const ConvPatchesArgs&) = nullptr;
  DType weight_type = DType::kF32;
  std::vector<const void*> weights;  ///< [phases] of [taps][channels]
};

void run_convolution_depthwise(const ConvolutionDepthwiseParams& p, const Tile& tile, const StepContext& step,
                               WorkerContext& worker) {
  const ConvolutionGeometry s(p.op, step.sizes);
  const int64_t stride[] = {s.out[1] * s.out[2] * p.channels, s.out[2] * p.channels, p.channels};
  for (size_t i = 0; i < p.phases.size() && tile.col_begin < tile.col_end; ++i) {
    const ConvPhase& phase = p.phases[i];
    const int64_t item_rows = phase.pixels(s);
    int64_t first = 0;
    for (size_t axis = 0; axis < kConvMaxAxes; ++axis) first += phase.axes[axis].out_first * stride[axis];
    for_items(phase.rows_before(s, tile.row_begin), phase.rows_before(s, tile.row_end), item_rows,
              [&](int64_t item, int64_t begin, int64_t end) {
                const int64_t y_at = item * s.pixels() * p.channels + first;
                ConvDepthwise args = {.input = p.input_of(s, phase, item, step),
                                      .weight = p.weights[i],
                                      .weight_type = p.weight_type,
                                      .bias = p.bias_of_item(item, static_cast<float*>(worker.buffer)),
                                      .y = p.y + y_at,
                                      .y_strides = {},
                                      .residual = p.residual ? p.residual + y_at : nullptr,
                                      .row_begin = begin - item * item_rows,
                                      .row_end = end - item * item_rows,
                                      .c_begin = tile.col_begin,
                                      .c_end = tile.col_end,
                                      .scratch = worker.scratch};
                for (size_t axis = 0; axis < kConvMaxAxes; ++axis)
                  args.y_strides[axis] = stride[axis] * phase.axes[axis].out_step;
                ConvPatchesArgs call = {};
                call.depthwise = &args;
                p.convolve(call);
              });
  }
}

/// Transposes the taps of a phase: [channels][taps of the kernel] to [taps of the phase][channels].
void transpose_taps(const ConvolutionParams& p, const ConvPhase& phase, const WeightSource& source, uint8_t* to) {
  const auto bytes = static_cast<size_t>(dtype_info(source.view.dtype).block_bytes);
  const int64_t taps = p.op.num_taps();
  const auto& a = phase.axes;
  for (int64_t j0 = 0; j0 < a[0].taps; ++j0)
    for (int64_t j1 = 0; j1 < a[1].taps; ++j1)
      for (int64_t j2 = 0; j2 < a[2].taps; ++j2) {
        const int64_t of[] = {j0, j1, j2};
        int64_t tap = 0;
        for (size_t i = 0; i < kConvMaxAxes; ++i)
          tap = tap * p.axes[i].kernel + a[i].tap_first + of[i] * a[i].tap_stride;
        for (int64_t c = 0; c < p.channels; ++c, to += bytes) {
          const int64_t row = source.source_row ? source.source_row(c) : c;
          std::memcpy(to, static_cast<const uint8_t*>(source.view.data) + static_cast<size_t>(row * taps + tap) * bytes,
                      bytes);
        }
      }
}

}  // namespace

Status lower_convolution_depthwise(LowerContext& c) {
  auto params = std::make_shared<ConvolutionDepthwiseParams>();
  REDLINE_TRY(params->init(c));
  params->convolve = c.kernels().conv_f32;
  params->weight_type = c.in(1).dtype;
  const WeightSource& source = c.in(1).weight;
  source.need_all();
  for (const ConvPhase& phase : params->phases) {
    const int64_t bytes = phase.num_taps() * params->channels * dtype_info(params->weight_type).block_bytes;
    REDLINE_ASSIGN(void* const target, c.allocate_weight(std::max<int64_t>(bytes, 64)));
    transpose_taps(*params, phase, source, static_cast<uint8_t*>(target));
    params->weights.push_back(target);
  }
  auto stage = LoweredStage::make<run_convolution_depthwise>(convolution_grid(c, params->op), params);
  params->add_operands(c, stage);
  stage.buffer_bytes = (params->channels * int64_t{sizeof(float)} + 63) / 64 * 64;
  c.add_stage(std::move(stage));
  add_leading_stage(c, *params);
  return {};
}

}  // namespace redline
