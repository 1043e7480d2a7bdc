#include "graph/ops/gated_add.h"

#include "backends/cpu/lowering.h"
#include "graph/items.h"
#include "kernels/cpu/gated_add.h"

namespace redline {
namespace {

struct Attrs {
  void (*kernel)(const GatedAddArgs&);
  GatedAddAttrs op;
  int64_t table_columns;
};

// operands: a, b, table, y
void run(const CpuStage& stage, const Tile& tile, const StepContext& step, WorkerContext&) {
  const auto& a = stage.attrs_as<Attrs>();
  for_items(tile.row_begin, tile.row_end, a.op.rows_per_item.eval(step.sizes),
            [&](int64_t item, int64_t begin, int64_t end) {
              const int64_t at = begin * stage.plan->cols;
              a.kernel({stage.operand<float>(0) + at, stage.operand<float>(1) + at,
                        stage.operand<float>(2) + item * a.table_columns + a.op.column, stage.operand<float>(3) + at,
                        end - begin, stage.plan->cols});
            });
}

Status lower(LowerContext& c) {
  const auto& in = c.op().inputs;
  LoweredStage stage = c.output_stage(run);
  stage.row_tiles = c.workers();
  stage.reads = {{in[0], Reads::kTile}, {in[1], Reads::kTile}, {in[2], Reads::kAll}};
  stage.in_place_of = in[0];
  stage.attrs = std::make_shared<Attrs>(
      Attrs{c.kernels().gated_add, std::any_cast<const GatedAddAttrs&>(c.op().attrs), c.in(2).shape[1].constant()});
  c.add_stage(std::move(stage), {c.at(in[0]), c.at(in[1]), c.at(in[2]), c.at(c.op().outputs[0])});
  return {};
}

}  // namespace

extern const CpuLowering kGatedAddLowering = {&kGatedAdd, lower};

}  // namespace redline
