#include "graph/ops/rope.h"

#include "backends/cpu/lowering.h"

namespace redline {
namespace {

void table_run(const CpuStage& stage, const Tile& tile, const StepContext&, WorkerContext&) {
  const auto& a = stage.attrs_as<RopeTableAttrs>();
  for (int64_t t = tile.row_begin; t < tile.row_end; ++t)
    rope_table_row(a, stage.operand<int32_t>(0)[t], a.depends_on_length() ? stage.operand<int32_t>(2)[t] : 0,
                   stage.operand<float>(1) + t * static_cast<int64_t>(a.inverse_frequencies.size()) * 2);
}

Status table_lower(LowerContext& c) {
  LoweredStage stage = c.output_stage(table_run);
  stage.row_tiles = c.workers();
  stage.attrs = std::make_shared<RopeTableAttrs>(std::any_cast<const RopeTableAttrs&>(c.op().attrs));
  std::vector<LowerContext::Operand> operands = {c.at(c.op().inputs[0]), c.at(c.op().outputs[0])};
  for (const ValueId id : c.op().inputs) stage.reads.push_back({id, Reads::kRows});
  if (c.op().inputs.size() > 1) operands.push_back(c.at(c.op().inputs[1]));
  c.add_stage(std::move(stage), operands);
  return {};
}

struct Attrs {
  void (*kernel)(const RopeArgs&);
  int64_t cols, head_dim, rotary_dim;
};

// A tile covers some heads of all rows.
void rope_run(const CpuStage& stage, const Tile& tile, const StepContext&, WorkerContext&) {
  const auto& a = stage.attrs_as<Attrs>();
  const int64_t heads = (tile.col_end - tile.col_begin) / a.head_dim;
  for (int64_t t = tile.row_begin; t < tile.row_end; ++t) {
    const int64_t at = t * a.cols + tile.col_begin;
    const float* table = stage.operand<float>(1) + t * a.rotary_dim;
    a.kernel({stage.operand<float>(0) + at, stage.operand<float>(2) + at, table, table + a.rotary_dim / 2, 1, heads,
              a.head_dim, a.rotary_dim});
  }
}

Status rope_lower(LowerContext& c) {
  const int64_t head_dim = std::any_cast<const RopeAttrs&>(c.op().attrs).head_dim;
  LoweredStage stage = c.output_stage(rope_run);
  // Split by heads like the preceding projection, so that a tile starts when its heads are ready.
  stage.col_begin = LowerContext::cut_columns(stage.cols, head_dim, c.workers());
  stage.reads = {{c.op().inputs[0], Reads::kTile}, {c.op().inputs[1], Reads::kRows}};
  stage.in_place_of = c.op().inputs[0];
  stage.attrs = std::make_shared<Attrs>(Attrs{c.kernels().rope, stage.cols, head_dim, c.in(1).shape[1].constant()});
  c.add_stage(std::move(stage), {c.at(c.op().inputs[0]), c.at(c.op().inputs[1]), c.at(c.op().outputs[0])});
  return {};
}

}  // namespace

extern const CpuLowering kRopeTableLowering = {&kRopeTable, table_lower};
extern const CpuLowering kRopeLowering = {&kRope, rope_lower};

}  // namespace redline
