#include "graph/ops/rope.h"

#include "backends/cpu/lowering.h"

namespace redline {
namespace {

struct TableParams {
  RopeTableAttrs op;
  int64_t num_axes = 1;
  Operand<const int32_t> positions, lengths;
  Operand<float> y;
};

void run_table(const TableParams& p, const Tile& tile, const StepContext&, WorkerContext&) {
  for (int64_t t = tile.row_begin; t < tile.row_end; ++t)
    rope_table_row(p.op, p.positions + t * p.num_axes, p.op.depends_on_length() ? p.lengths[t] : 0,
                   p.y + t * static_cast<int64_t>(p.op.inverse_frequencies.size()) * 2);
}

Status lower_table(LowerContext& c) {
  auto params = std::make_shared<TableParams>();
  params->op = std::any_cast<const RopeTableAttrs&>(c.op().attrs);
  if (!params->op.axes.empty()) params->num_axes = c.in(0).shape[1].constant();
  LoweredStage stage = c.output_stage<run_table>(params);
  stage.grid.row_parts = c.workers();
  stage.read(params->positions, c.op().inputs[0], Reads::kRows);
  if (c.op().inputs.size() > 1) stage.read(params->lengths, c.op().inputs[1], Reads::kRows);
  stage.write(params->y, c.op().outputs[0]);
  c.add_stage(std::move(stage));
  return {};
}

struct RopeParams {
  void (*kernel)(const RopeArgs&);
  int64_t cols, head_dim, rotary_dim;
  Operand<const float> x, table;
  Operand<float> y;
};

// A tile covers some heads of all rows.
void run_rope(const RopeParams& p, const Tile& tile, const StepContext&, WorkerContext&) {
  const int64_t heads = (tile.col_end - tile.col_begin) / p.head_dim;
  for (int64_t t = tile.row_begin; t < tile.row_end; ++t) {
    const int64_t at = t * p.cols + tile.col_begin;
    const float* table = p.table + t * p.rotary_dim;
    p.kernel({.x = p.x + at,
              .y = p.y + at,
              .cosine = table,
              .sine = table + p.rotary_dim / 2,
              .rows = 1,
              .heads = heads,
              .head_dim = p.head_dim,
              .rotary_dim = p.rotary_dim});
  }
}

Status lower_rope(LowerContext& c) {
  auto params = std::make_shared<RopeParams>();
  params->kernel = c.kernels().rope;
  params->cols = c.out().shape[1].constant();
  params->head_dim = std::any_cast<const RopeAttrs&>(c.op().attrs).head_dim;
  params->rotary_dim = c.in(1).shape[1].constant();
  LoweredStage stage = c.output_stage<run_rope>(params);
  // Split by heads like the preceding projection, so that a tile starts when its heads are ready.
  stage.grid.col_begin = LowerContext::cut_columns(stage.grid.cols, params->head_dim, c.workers());
  stage.read(params->x, c.op().inputs[0], Reads::kTile);
  stage.read(params->table, c.op().inputs[1], Reads::kRows);
  stage.write(params->y, c.op().outputs[0]);
  stage.in_place_of = c.op().inputs[0];
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kRopeOps[] = {{&kRopeTable, lower_table}, {&kRope, lower_rope}};

}  // namespace

extern const CpuLowerings kRopeLowerings = kRopeOps;

}  // namespace redline
