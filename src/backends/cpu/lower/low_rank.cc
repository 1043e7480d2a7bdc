#include "graph/ops/low_rank.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/adapter_up.h"
#include "backends/cpu/linear_lowering.h"
#include "backends/cpu/lowering.h"
#include "graph/ops/conv2d.h"
#include "graph/ops/linear.h"

namespace redline {
namespace {

struct Attrs {
  std::shared_ptr<AdapterSlot> slot;
  ActivationLayouts layouts;                                    // of x
  void (*down[kNumActivationLayouts])(const LinearArgs&) = {};  // by the layout of x
  AdapterUp up;
};

// operands: x, t. A tile covers some rows, rounded to whole row panels of x.
void run_down(const CpuStage& stage, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const auto& a = stage.attrs_as<Attrs>();
  const AdapterSlot& slot = *a.slot;
  if (slot.parts.empty()) return;
  const int64_t rows = stage.plan->rows.eval(step.sizes);
  const ActivationLayout form = a.layouts.for_rows(rows);
  const auto panel = [&](int64_t row) {
    const int64_t lines = activation_layout_panel(form);
    return row >= rows ? row : (row + lines - 1) / lines * lines;
  };
  const int64_t begin = panel(tile.row_begin), end = std::min(rows, panel(tile.row_end));
  if (begin >= end) return;
  float* t = stage.operand<float>(1) + begin * slot.max_rank;
  for (const AdapterPart& part : slot.parts) {
    LinearArgs args = {};
    args.x = static_cast<const uint8_t*>(stage.operands[0]) + activation_layout_bytes(form, begin, slot.in_features);
    args.x_stride = args.in_features = slot.in_features;
    args.rows = end - begin;
    args.weight = part.down;
    args.out_features = args.n_end = part.rank;
    args.y = t;
    args.y_stride = slot.max_rank;
    args.scratch = worker.scratch;
    a.down[static_cast<int>(form)](args);
    for (int64_t r = 0; r < end - begin; ++r)
      for (int64_t i = 0; i < part.rank; ++i) t[r * slot.max_rank + i] *= part.scale;
    t += part.rank;
  }
}

// operands: t, the base linear's y, y. All rows of some columns.
void run_up(const CpuStage& stage, const Tile& tile, const StepContext&, WorkerContext& worker) {
  const auto& a = stage.attrs_as<Attrs>();
  const AdapterSlot& slot = *a.slot;
  const int64_t rows = tile.row_end;
  const float* t = stage.operand<float>(0);
  const float* residual = stage.operand<float>(1);
  auto* y = stage.operand<float>(2);
  if (slot.parts.empty() && residual != y)
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(y + r * slot.out_features + tile.col_begin, residual + r * slot.out_features + tile.col_begin,
                  static_cast<size_t>(tile.col_end - tile.col_begin) * sizeof(float));
  for (const AdapterPart& part : slot.parts) {
    LinearArgs args = {};
    args.rows = rows;
    args.out_features = slot.out_features;
    args.n_begin = tile.col_begin;
    args.n_end = tile.col_end;
    args.residual = residual;
    args.y = y;
    residual = y;  // for the next part
    args.y_stride = slot.out_features;
    args.scratch = worker.scratch;
    a.up.add(args, part, t, slot.max_rank, rows >= kXTileRows, worker.buffer);
    t += part.rank;
  }
}

Status lower(LowerContext& c) {
  const auto& slot = std::any_cast<const LowRankAttrs&>(c.op().attrs).slot;
  REDLINE_ASSIGN(const LinearKernels base, linear_kernels(c, 1));
  const CpuKernels& table = c.kernels();
  const bool exact = c.options().exact_f32;
  auto attrs = std::make_shared<Attrs>();
  attrs->slot = slot;
  attrs->layouts = base.layouts;
  const std::optional<DType> down = weight_type_reading(table, base.layouts, exact);
  if (!down) return unsupported("no kernels for adapters whose x is as this product reads it");
  slot->down_type = *down;
  attrs->up = AdapterUp::choose(table, exact);
  slot->up_type = attrs->up.type;
  for (int i = 0; i < kNumActivationLayouts; ++i)
    attrs->down[i] = linear_kernel(table, *down, static_cast<ActivationLayout>(i));
  const auto& in = c.op().inputs;
  const auto& out = c.op().outputs;

  LoweredStage first;
  first.name = c.op().name + ".down";
  first.run = run_down;
  first.rows = c.out(1).shape[0];
  first.cols = slot->max_rank;
  first.row_tiles = c.workers();
  first.reads = {{in[0], Reads::kAll}};
  first.writes = {out[1]};
  first.attrs = attrs;
  c.add_stage(std::move(first), {c.at(in[0]), c.at(out[1])});

  LoweredStage second = c.output_stage(run_up);
  second.name = c.op().name + ".up";
  second.writes = {out[0]};
  second.col_begin = LowerContext::cut_columns(slot->out_features, kStripRows, c.workers() * 2);
  second.reads = {{out[1], Reads::kAll}, {in[2], Reads::kTile}};
  second.in_place_of = in[2];
  second.buffer_bytes = attrs->up.buffer_bytes(second.rows.eval(c.options().bounds), slot->max_rank);
  second.attrs = attrs;
  c.add_stage(std::move(second), {c.at(out[1]), c.at(in[2]), c.at(out[0])});
  return {};
}

}  // namespace

AdapterUp AdapterUp::choose(const CpuKernels& table, bool exact_f32) {
  AdapterUp up;
  up.type = exact_f32 ? DType::kF32 : DType::kBF16;
  up.by_rows = table.linear[static_cast<size_t>(up.type)];
  if (exact_f32 || !table.has_tile_unit) return up;
  up.by_tiles = table.linear_tiles[static_cast<size_t>(up.type)];
  up.prepare_tiles = table.prepare_x[static_cast<int>(ActivationLayout::kBf16Tiled)];
  return up;
}

void AdapterUp::add(LinearArgs args, const AdapterPart& part, const float* t, int64_t t_stride, bool tiles,
                    void* buffer) const {
  args.weight = part.up;
  args.in_features = part.rank;
  if (by_tiles && tiles) {
    prepare_tiles({t, t_stride, part.rank, 0, args.rows, 0, part.rank, buffer});
    args.x = buffer;
    by_tiles(args);
  } else {
    args.x = t;
    args.x_stride = t_stride;
    by_rows(args);
  }
}

extern const CpuLowering kLowRankLowering = {&kLowRank, lower};

}  // namespace redline
