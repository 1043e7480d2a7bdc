#include "graph/ops/gather_columns.h"

#include "backends/cpu/lowering.h"

namespace redline {
namespace {

struct GatherColumnsParams {
  std::shared_ptr<const std::vector<int32_t>> columns;
  int64_t x_cols, y_cols;
  Operand<const float> x;
  Operand<float> y;
};

void run_gather_columns(const GatherColumnsParams& p, const Tile& tile, const StepContext&, WorkerContext&) {
  const int32_t* columns = p.columns->data();
  for (int64_t i = tile.row_begin; i < tile.row_end; ++i) {
    const float* x = p.x + i * p.x_cols;
    float* y = p.y + i * p.y_cols;
    for (int64_t k = tile.col_begin; k < tile.col_end; ++k) y[k] = x[columns[k]];
  }
}

Status lower_gather_columns(LowerContext& c) {
  auto params = std::make_shared<GatherColumnsParams>();
  params->columns = std::any_cast<const GatherColumnsAttrs&>(c.op().attrs).columns;
  params->x_cols = c.in(0).shape[1].constant();
  params->y_cols = c.out().shape[1].constant();
  LoweredStage stage = c.output_stage<run_gather_columns>(params);
  stage.grid.row_parts = c.workers();
  stage.read(params->x, c.op().inputs[0], Reads::kRows);
  stage.write(params->y, c.op().outputs[0]);
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kGatherColumnsOps[] = {{&kGatherColumns, lower_gather_columns}};

}  // namespace

extern const CpuLowerings kGatherColumnsLowerings = kGatherColumnsOps;

}  // namespace redline
