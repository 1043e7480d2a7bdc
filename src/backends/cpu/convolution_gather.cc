// Convolutions of any number of axes and groups as products of `linear` with patches, a block of patches at a time.
#include <algorithm>
#include <cstring>

#include "backends/cpu/conv2d_lowering.h"
#include "backends/cpu/convolution_lowering.h"
#include "graph/items.h"
#include "kernels/cpu/linear/linear_choice.h"
#include "tensor/packed_weight.h"

namespace redline {
namespace {

struct ConvolutionGatherParams : ConvolutionParams {
  void (*patches)(const ConvPatchesArgs&) = nullptr;
  void (*prepare_x[kNumActivationLayouts])(const PrepareXArgs&) = {};
  LinearKernels kernels;
  ConvPatchOrder order = ConvPatchOrder::kTaps;
  int64_t group_channels = 0, group_features = 0;
  int64_t max_rows = 0;                            ///< maximum rows of a block
  std::vector<const void*> weights;                ///< [phases][groups] packed
  int64_t float_at = 0, sums_at = 0, bias_at = 0;  ///< offsets in WorkerContext::buffer, after the patches

  template <class T>
  T* buffer(const WorkerContext& worker, int64_t at) const {
    return reinterpret_cast<T*>(static_cast<uint8_t*>(worker.buffer) + at);
  }
};

// The patches of a block stay in the L2 cache while the kernel iterates over the weight's columns.
constexpr int64_t kGatherBlockBytes = 1 << 20;
constexpr int64_t kGatherMaxRows = 512;

int64_t gather_rows(int64_t row_bytes) {
  return std::clamp(kGatherBlockBytes / std::max<int64_t>(1, row_bytes) / kXTileRows * kXTileRows, kXTileRows,
                    kGatherMaxRows);
}

/// A block of rows of one phase, in one step.
struct GatherBlock {
  const ConvolutionGeometry& s;
  const ConvPhase& phase;
  int64_t begin, end;  ///< rows of the phase
  ActivationLayout form;
};

/// Writes the patches of a group's channels to the worker's buffer, in the block's layout.
void gather(const ConvolutionGatherParams& p, const GatherBlock& b, int64_t group, const StepContext& step,
            WorkerContext& worker) {
  const bool is_direct =
      b.form == ActivationLayout::kF32 || (b.form == ActivationLayout::kBf16Tiled && p.order == ConvPatchOrder::kTaps);
  const int64_t cols = b.phase.num_taps() * p.group_channels, item_rows = b.phase.pixels(b.s);
  void* out = is_direct ? worker.buffer : p.buffer<void>(worker, p.float_at);
  for_items(b.begin, b.end, item_rows, [&](int64_t item, int64_t row, int64_t last) {
    ConvGather g = {.input = p.input_of(b.s, b.phase, item, step), .order = p.order, .scratch = worker.scratch};
    g.input.channels = p.group_channels;
    g.input.x += group * p.group_channels;
    if (g.input.leading != nullptr) g.input.leading += group * p.group_channels;
    ConvPatchesArgs args = {};
    args.gather = &g;
    args.row_begin = row - item * item_rows;
    args.row_end = last - item * item_rows;
    args.form = is_direct ? b.form : ActivationLayout::kF32;
    args.out_row = row - b.begin;
    args.out = out;
    p.patches(args);
  });
  if (!is_direct)
    p.prepare_x[static_cast<int>(b.form)]({.x = static_cast<const float*>(out),
                                           .x_stride = cols,
                                           .cols = cols,
                                           .row_begin = 0,
                                           .row_end = b.end - b.begin,
                                           .col_begin = 0,
                                           .col_end = cols,
                                           .out = worker.buffer});
}

/// Writes sums [rows, group_features], which include the bias, to the output rows of the phase's rows.
void store_sums(const ConvolutionGatherParams& p, const GatherBlock& b, int64_t group, int64_t n_begin, int64_t n_end,
                const float* sums) {
  for (int64_t row = b.begin; row < b.end; ++row, sums += p.group_features) {
    const int64_t at = b.phase.output_row(b.s, row) * p.out_features + group * p.group_features + n_begin;
    if (p.residual) p.add({.a = sums + n_begin, .b = p.residual + at, .y = p.y + at, .count = n_end - n_begin});
    else std::memcpy(p.y + at, sums + n_begin, static_cast<size_t>(n_end - n_begin) * sizeof(float));
  }
}

/// Computes columns [n_begin, n_end) of a group for the rows of a block.
void multiply(const ConvolutionGatherParams& p, const GatherBlock& b, size_t phase, int chosen, int64_t group,
              int64_t n_begin, int64_t n_end, const float* bias, WorkerContext& worker) {
  const int64_t cols = b.phase.num_taps() * p.group_channels, rows = b.end - b.begin;
  const bool has_one_phase = p.phases.size() == 1;
  const int64_t at = b.begin * p.out_features + group * p.group_features;
  float* sums = p.buffer<float>(worker, p.sums_at);
  if (cols == 0) {  // outputs that no tap reaches
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t n = n_begin; n < n_end; ++n) sums[row * p.group_features + n] = bias != nullptr ? bias[n] : 0.0f;
    return store_sums(p, b, group, n_begin, n_end, sums);
  }
  p.kernels.run[chosen]({.x = worker.buffer,
                         .x_stride = cols,
                         .rows = rows,
                         .weight = p.weights[phase * static_cast<size_t>(p.op.groups) + static_cast<size_t>(group)],
                         .out_features = p.group_features,
                         .in_features = cols,
                         .n_begin = n_begin,
                         .n_end = n_end,
                         .bias = bias,
                         .residual = p.residual && has_one_phase ? p.residual + at : nullptr,
                         .y = has_one_phase ? p.y + at : sums,
                         .y_stride = has_one_phase ? p.out_features : p.group_features,
                         .scratch = worker.scratch});
  if (!has_one_phase) store_sums(p, b, group, n_begin, n_end, sums);
}

void run_convolution_gather(const ConvolutionGatherParams& p, const Tile& tile, const StepContext& step,
                            WorkerContext& worker) {
  const ConvolutionGeometry s(p.op, step.sizes);
  // A chunk has the bits of the whole sequence, so its kernel does not depend on the number of rows.
  const int chosen =
      p.op.has_leading ? p.kernels.layouts.count - 1 : p.kernels.layouts.index_for_rows(s.batch * s.pixels());
  const int64_t n_begin = p.op.groups == 1 ? tile.col_begin : 0,
                n_end = p.op.groups == 1 ? tile.col_end : p.group_features;
  if (n_begin >= n_end) return;
  for (size_t i = 0; i < p.phases.size(); ++i) {
    const ConvPhase& phase = p.phases[i];
    const int64_t item_rows = phase.pixels(s), rows_end = phase.rows_before(s, tile.row_end);
    for (int64_t begin = phase.rows_before(s, tile.row_begin), end; begin < rows_end; begin = end) {
      end = std::min(begin + p.max_rows, rows_end);
      const int64_t item = begin / item_rows;
      // An item bias applies only to the rows of that item.
      if (p.item_bias) end = std::min(end, (item + 1) * item_rows);
      const float* bias = p.bias_of_item(item, p.buffer<float>(worker, p.bias_at));
      const GatherBlock block = {s, phase, begin, end, p.kernels.layouts.at[chosen].layout};
      for (int64_t group = 0; group < p.op.groups; ++group) {
        gather(p, block, group, step, worker);
        multiply(p, block, i, chosen, group, n_begin, n_end,
                 bias != nullptr ? bias + group * p.group_features : nullptr, worker);
      }
    }
  }
}

/// Packs the weight of one group and phase, whose rows are [group_features] [group_channels, taps of the phase].
void pack_group(const ConvolutionGatherParams& p, const ConvPhase& phase, const WeightSource& source, int64_t group,
                void* target) {
  const int64_t panels = (p.group_features + kRowPanelRows - 1) / kRowPanelRows, features = p.group_features,
                channels = p.group_channels;
  TensorView view = source.view;
  if (!p.op.is_transposed) {
    view.shape[0] = features;
    pack_row_panels(view, 0, panels, target, [&](int64_t n) {
      const int64_t row = group * features + n;
      return source.source_row ? source.source_row(row) : row;
    });
    return;
  }
  const int64_t taps = p.op.num_taps(), own = phase.num_taps();
  const auto bytes = static_cast<size_t>(dtype_info(view.dtype).block_bytes);
  std::vector<uint8_t> rows(static_cast<size_t>(features * channels * own) * bytes);
  uint8_t* to = rows.data();
  const auto& a = phase.axes;
  for (int64_t n = 0; n < features; ++n)
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t j = 0; j < own; ++j, to += bytes) {
        int64_t tap = 0;
        const int64_t of[] = {j / (a[1].taps * a[2].taps), j / a[2].taps % a[1].taps, j % a[2].taps};
        for (size_t i = 0; i < kConvMaxAxes; ++i)
          tap = tap * p.axes[i].kernel + a[i].tap_first + of[i] * a[i].tap_stride;
        const int64_t from = ((group * channels + c) * features + n) * taps + tap;
        std::memcpy(to, static_cast<const uint8_t*>(view.data) + static_cast<size_t>(from) * bytes, bytes);
      }
  view = {view.dtype, {features, channels, own}, rows.data()};
  pack_row_panels(view, 0, panels, target);
}

Status pack_weights(LowerContext& c, ConvolutionGatherParams& p) {
  if (p.op.groups == 1 && !p.op.is_transposed) {
    REDLINE_ASSIGN(const void* const weight, c.packed_weight(1));
    p.weights = {weight};
    return {};
  }
  const WeightSource& source = c.in(1).weight;
  source.need_all();
  if (p.op.is_transposed && source.source_row)
    return unsupported("{}: a transposed convolution whose rows are stored in another order", c.in(1).name);
  for (const ConvPhase& phase : p.phases)
    for (int64_t group = 0; group < p.op.groups; ++group) {
      const int64_t bytes = packed_bytes(c.in(1).dtype, p.group_features, phase.num_taps() * p.group_channels);
      REDLINE_ASSIGN(void* const target, c.allocate_weight(std::max<int64_t>(bytes, 64)));
      if (bytes > 0) pack_group(p, phase, source, group, target);
      p.weights.push_back(target);
    }
  return {};
}

}  // namespace

Status lower_convolution_gather(LowerContext& c) {
  const ValueInfo& w = c.in(1);
  auto params = std::make_shared<ConvolutionGatherParams>();
  params->kernels = choose_linear(c.kernels(), w.dtype, c.options().exact_f32);
  if (!params->kernels.run[0])
    return unsupported("{} has type {}, which the linear kernels do not read", w.name, dtype_info(w.dtype).name);
  REDLINE_TRY(params->init(c));
  params->patches = c.kernels().conv_patches;
  std::copy(std::begin(c.kernels().prepare_x), std::end(c.kernels().prepare_x), params->prepare_x);
  // The rows of a block type are packed as they are.
  if (dtype_info(w.dtype).is_block) params->order = ConvPatchOrder::kChannels;
  params->group_channels = params->channels / params->op.groups;
  params->group_features = params->out_features / params->op.groups;
  REDLINE_TRY(pack_weights(c, *params));

  int64_t cols = 0;
  for (const ConvPhase& phase : params->phases) cols = std::max(cols, phase.num_taps() * params->group_channels);
  const ActivationLayouts& layouts = params->kernels.layouts;
  const bool all_halves = layouts.count == 1 && layouts.at[0].layout == ActivationLayout::kBf16Tiled;
  params->max_rows = std::min(gather_rows(cols * (all_halves ? 2 : 4)), gather_rows(params->group_features * 4));
  const auto aligned = [](int64_t n) { return (n + 63) / 64 * 64; };
  const int64_t rows = params->max_rows, float_bytes = int64_t{sizeof(float)};
  params->float_at = aligned(layouts.bytes(rows, cols));
  params->sums_at =
      params->float_at + (params->order == ConvPatchOrder::kChannels ? aligned(rows * cols * float_bytes) : 0);
  params->bias_at = params->sums_at +
                    (params->phases.size() > 1 || cols == 0 ? aligned(rows * params->group_features * float_bytes) : 0);
  TaskGrid grid = convolution_grid(c, params->op);
  if (params->op.groups > 1) {  // tiles of columns would have to begin with a group
    constexpr int kTasksPerWorker = 4;
    const int row_parts = c.workers() * kTasksPerWorker;
    grid = TaskGrid::of(grid.rows, grid.cols);
    grid.row_parts = row_parts;
  }
  auto stage = LoweredStage::make<run_convolution_gather>(std::move(grid), params);
  params->add_operands(c, stage);
  stage.buffer_bytes = params->bias_at + aligned(params->out_features * float_bytes);
  c.add_stage(std::move(stage));
  add_leading_stage(c, *params);
  return {};
}

}  // namespace redline
