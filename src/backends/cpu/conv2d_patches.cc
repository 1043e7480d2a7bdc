// A SquareConv2d as products of `linear` with im2col patches, a block of patches at a time.
#include <algorithm>

#include "backends/cpu/conv2d_lowering.h"
#include "graph/items.h"
#include "kernels/cpu/linear/linear_choice.h"

namespace redline {
namespace {

struct Conv2dPatchesParams : Conv2dParams {
  void (*patches)(const ConvPatchesArgs&) = nullptr;
  LinearKernels kernels;
  int64_t in_features = 0;
  void (*adapter_down[kNumActivationLayouts])(const LinearArgs&) = {};
};

// The patches of a block of pixels stay in the L2 cache while the kernel iterates over the weight's columns.
constexpr int64_t kConv2dPatchesBlockBytes = 1 << 20;

constexpr int64_t kMaxBlockRows = 512;

int64_t block_rows(int64_t in_features, ActivationLayout form) {
  const int64_t row_bytes = in_features * (form == ActivationLayout::kBf16Tiled ? 2 : 4);
  return std::clamp(kConv2dPatchesBlockBytes / row_bytes / kXTileRows * kXTileRows, kXTileRows, kMaxBlockRows);
}

int64_t patch_block_bytes(int64_t in_features, ActivationLayout form) {
  return activation_layout_bytes(form, block_rows(in_features, form), in_features);
}

/// Writes the patches of rows [begin, end) of all items to the worker's buffer.
void make_patches(const Conv2dPatchesParams& p, const Conv2dGeometry& s, int64_t begin, int64_t end,
                  ActivationLayout form, WorkerContext& worker) {
  for_items(begin, end, s.pixels(), [&](int64_t item, int64_t row, int64_t last) {
    ConvPatchesArgs args = p.input_of(s, item);
    args.row_begin = row - item * s.pixels();
    args.row_end = last - item * s.pixels();
    args.form = form;
    args.out_row = row - begin;
    args.out = worker.buffer;
    p.patches(args);
  });
}

/// Adds the adapters to rows [begin, end), whose patches are in the worker's buffer.
void add_adapters(const Conv2dPatchesParams& p, const StepContext& step, const Tile& tile, int64_t begin, int64_t end,
                  ActivationLayout form, WorkerContext& worker) {
  const int64_t k = p.in_features;
  for_adapted_rows(step.adapters, *p.op.adapters, step.sizes, begin, end, [&](const AdaptedRows& adapted) {
    // Rows before the segment in its panel are computed too, and dropped.
    const int64_t skip = (adapted.begin - begin) % activation_layout_panel(form);
    const int64_t first = adapted.begin - begin - skip, count = adapted.end - adapted.begin;
    for (const WeightedAdapter& each : adapted.adapters) {
      const AdapterFactors* factors = factors_at(each, *p.op.adapters);
      if (factors == nullptr) continue;
      const int64_t rank = factors->rank;
      float* t = p.adapters.rows(worker);
      p.adapter_down[static_cast<int>(form)](
          {.x = static_cast<const uint8_t*>(worker.buffer) + activation_layout_bytes(form, first, k),
           .x_stride = k,
           .rows = skip + count,
           .weight = factors->down,
           .out_features = rank,
           .in_features = k,
           .n_begin = 0,
           .n_end = rank,
           .bias = nullptr,
           .residual = nullptr,
           .y = t,
           .y_stride = rank,
           .scratch = worker.scratch});
      if (skip > 0) std::copy(t + skip * rank, t + (skip + count) * rank, t);
      p.adapters.add_up(*factors, factors->scale * each.weight, tile, count, adapted.segment_rows, p.out_features,
                        p.y + adapted.begin * p.out_features, worker);
    }
  });
}

void run_conv2d_patches(const Conv2dPatchesParams& p, const Tile& tile, const StepContext& step,
                        WorkerContext& worker) {
  const Conv2dGeometry s(p.square, step.sizes);
  const int64_t rows = s.batch * s.pixels(), cols = p.out_features, k = p.in_features;
  const int chosen = p.kernels.layouts.index_for_rows(rows);
  const ActivationLayout form = p.kernels.layouts.at[chosen].layout;
  const int64_t most = block_rows(k, form);
  for (int64_t begin = tile.row_begin, end; begin < tile.row_end; begin = end) {
    end = std::min(begin + most, tile.row_end);
    // An item bias applies only to the rows of that item.
    if (p.item_bias) end = std::min(end, (begin / s.pixels() + 1) * s.pixels());
    make_patches(p, s, begin, end, form, worker);
    p.kernels.run[chosen]({.x = worker.buffer,
                           .x_stride = k,
                           .rows = end - begin,
                           .weight = p.weight,
                           .out_features = cols,
                           .in_features = k,
                           .n_begin = tile.col_begin,
                           .n_end = tile.col_end,
                           .bias = p.bias_of_items(begin / s.pixels(), 1, worker),
                           .residual = p.residual ? p.residual + begin * cols : nullptr,
                           .y = p.y + begin * cols,
                           .y_stride = cols,
                           .scratch = worker.scratch});
    if (p.op.adapters && !step.adapters.empty()) add_adapters(p, step, tile, begin, end, form, worker);
  }
}

Status lower_adapters(const LowerContext& c, Conv2dPatchesParams& p, int64_t& buffer_bytes) {
  p.adapters.reserve(c, *p.op.adapters, kMaxBlockRows, buffer_bytes);
  const auto down = static_cast<size_t>(p.op.adapters->down_type);
  p.adapter_down[static_cast<int>(ActivationLayout::kF32)] = c.kernels().linear[down];
  p.adapter_down[static_cast<int>(ActivationLayout::kBf16Tiled)] = c.kernels().linear_tiles[down];
  for (int i = 0; i < p.kernels.layouts.count; ++i) {
    const ActivationLayout form = p.kernels.layouts.at[i].layout;
    if (!p.adapter_down[static_cast<int>(form)])
      return unsupported("no kernel for adapters whose patches are {}", activation_layout_name(form));
  }
  return {};
}

}  // namespace

Status lower_conv2d_patches(LowerContext& c) {
  const ValueInfo& w = c.in(1);
  auto params = std::make_shared<Conv2dPatchesParams>();
  params->kernels = choose_linear(c.kernels(), w.dtype, c.options().exact_f32);
  if (!params->kernels.run[0])
    return unsupported("{} has type {}, which the linear kernels do not read", w.name, dtype_info(w.dtype).name);
  REDLINE_TRY(params->init(c));
  params->patches = c.kernels().conv_patches;
  if (params->op.has_norm) return internal("{}: a convolution by patches cannot normalize its input", w.name);
  params->in_features = params->channels * params->op.num_taps();
  for (int i = 0; i < params->kernels.layouts.count; ++i) {
    const ActivationLayout form = params->kernels.layouts.at[i].layout;
    if (form == ActivationLayout::kI8Grouped)
      return internal("{}: patches cannot be made in the layout kI8Grouped", w.name);
    params->block_bytes = std::max(params->block_bytes, patch_block_bytes(params->in_features, form));
  }
  params->block_bytes = (params->block_bytes + 63) / 64 * 64;
  auto stage = LoweredStage::make<run_conv2d_patches>(convolution_grid(c, params->op), params);
  params->add_operands(c, stage);
  if (params->op.adapters) REDLINE_TRY(lower_adapters(c, *params, stage.buffer_bytes));
  c.add_stage(std::move(stage));
  return {};
}

}  // namespace redline
