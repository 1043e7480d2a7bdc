#include "graph/ops/gated_add.h"

#include "backends/cpu/lowering.h"
#include "graph/items.h"
#include "kernels/cpu/gated_add.h"

namespace redline {
namespace {

struct GatedAddParams {
  void (*kernel)(const GatedAddArgs&);
  GatedAddAttrs op;
  int64_t cols, table_columns;
  Operand<const float> a, b, table;
  Operand<float> y;
};

void run_gated_add(const GatedAddParams& p, const Tile& tile, const StepContext& step, WorkerContext&) {
  for_items(tile.row_begin, tile.row_end, p.op.rows_per_item.eval(step.sizes),
            [&](int64_t item, int64_t begin, int64_t end) {
              const int64_t at = begin * p.cols;
              p.kernel({.a = p.a + at,
                        .b = p.b + at,
                        .gate = p.table + item * p.table_columns + p.op.column,
                        .y = p.y + at,
                        .rows = end - begin,
                        .cols = p.cols});
            });
}

Status lower_gated_add(LowerContext& c) {
  const auto& in = c.op().inputs;
  auto params = std::make_shared<GatedAddParams>();
  params->kernel = c.kernels().gated_add;
  params->op = std::any_cast<const GatedAddAttrs&>(c.op().attrs);
  params->cols = c.out().shape[1].constant();
  params->table_columns = c.in(2).shape[1].constant();
  LoweredStage stage = c.output_stage<run_gated_add>(params);
  stage.grid.row_parts = c.workers();
  stage.read(params->a, in[0], Reads::kTile);
  stage.read(params->b, in[1], Reads::kTile);
  stage.read(params->table, in[2], Reads::kAll);
  stage.write(params->y, c.op().outputs[0]);
  stage.in_place_of = in[0];
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kGatedAddOps[] = {{&kGatedAdd, lower_gated_add}};

}  // namespace

extern const CpuLowerings kGatedAddLowerings = kGatedAddOps;

}  // namespace redline
