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

/// Of both stages.
struct StageParams {
  std::shared_ptr<AdapterSlot> slot;
  Dim rows;
  int down_parts;                                               // work partitions of the down stage
  ActivationLayouts layouts;                                    // of x
  void (*down[kNumActivationLayouts])(const LinearArgs&) = {};  // by the layout of x
  AdapterUp up;
  Operand<const uint8_t> x;
  Operand<float> down_t;        // the down stage writes x down^T,
  Operand<const float> up_t;    // the up stage reads it
  Operand<const float> base_y;  // the base linear's
  Operand<float> y;
};

// A work partition is some whole row panels of x, whose height depends on the layout at the size of the step.
void run_down(const StageParams& p, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const AdapterSlot& slot = *p.slot;
  if (slot.parts.empty()) return;
  const int64_t rows = p.rows.eval(step.sizes);
  const ActivationLayout form = p.layouts.for_rows(rows);
  const int64_t lines = activation_layout_panel(form);
  const auto panel = [&](int64_t part) {
    const int64_t row = rows * part / p.down_parts;
    return std::min(rows, (row + lines - 1) / lines * lines);
  };
  const int64_t begin = panel(tile.row_begin), end = panel(tile.row_end);
  if (begin >= end) return;
  float* t = p.down_t + begin * slot.max_rank;
  for (const AdapterPart& part : slot.parts) {
    LinearArgs args = {};
    args.x = p.x + activation_layout_bytes(form, begin, slot.in_features);
    args.x_stride = args.in_features = slot.in_features;
    args.rows = end - begin;
    args.weight = part.down;
    args.out_features = args.n_end = part.rank;
    args.y = t;
    args.y_stride = slot.max_rank;
    args.scratch = worker.scratch;
    p.down[static_cast<int>(form)](args);
    for (int64_t r = 0; r < end - begin; ++r)
      for (int64_t i = 0; i < part.rank; ++i) t[r * slot.max_rank + i] *= part.scale;
    t += part.rank;
  }
}

// All rows of some columns.
void run_up(const StageParams& p, const Tile& tile, const StepContext&, WorkerContext& worker) {
  const AdapterSlot& slot = *p.slot;
  const int64_t rows = tile.row_end;
  const float* t = p.up_t;
  const float* residual = p.base_y;
  float* y = p.y;
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
    p.up.add(args, part, t, slot.max_rank, rows >= kXTileRows, worker.buffer);
    t += part.rank;
  }
}

Status lower(LowerContext& c) {
  const auto& slot = std::any_cast<const LowRankAttrs&>(c.op().attrs).slot;
  REDLINE_ASSIGN(const LinearKernels base, linear_kernels(c, 1));
  const CpuKernels& table = c.kernels();
  const bool exact = c.options().exact_f32;
  auto params = std::make_shared<StageParams>();
  params->slot = slot;
  params->rows = c.out(1).shape[0];
  params->layouts = base.layouts;
  const std::optional<DType> down = weight_type_reading(table, base.layouts, exact);
  if (!down) return unsupported("no kernels for adapters whose x is as this product reads it");
  slot->down_type = *down;
  params->up = AdapterUp::choose(table, exact);
  slot->up_type = params->up.type;
  for (int i = 0; i < kNumActivationLayouts; ++i)
    params->down[i] = linear_kernel(table, *down, static_cast<ActivationLayout>(i));
  const auto& in = c.op().inputs;
  const auto& out = c.op().outputs;

  params->down_parts = c.workers();
  auto first = LoweredStage::make<run_down>(TaskGrid::work_partitions(params->down_parts, slot->max_rank), params);
  first.name = c.op().name + ".down";
  first.read(params->x, in[0], Reads::kAll);
  first.write(params->down_t, out[1]);
  c.add_stage(std::move(first));

  LoweredStage second = c.output_stage<run_up>(params);
  second.name = c.op().name + ".up";
  second.grid.col_begin = LowerContext::cut_columns(slot->out_features, kStripRows, c.workers() * 2);
  second.read(params->up_t, out[1], Reads::kAll);
  second.read(params->base_y, in[2], Reads::kTile);
  second.write(params->y, out[0]);
  second.in_place_of = in[2];
  second.buffer_bytes = params->up.buffer_bytes(second.grid.rows.eval(c.options().bounds), slot->max_rank);
  c.add_stage(std::move(second));
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
    prepare_tiles({.x = t,
                   .x_stride = t_stride,
                   .cols = part.rank,
                   .row_begin = 0,
                   .row_end = args.rows,
                   .col_begin = 0,
                   .col_end = part.rank,
                   .out = buffer});
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
