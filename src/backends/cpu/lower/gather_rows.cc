#include "graph/ops/gather_rows.h"

#include <cstring>

#include "backends/cpu/lowering.h"

namespace redline {
namespace {

struct GatherRowsParams {
  int64_t cols;
  Operand<const float> x;
  Operand<const int32_t> rows;
  Operand<float> y;
};

void run_gather_rows(const GatherRowsParams& p, const Tile& tile, const StepContext&, WorkerContext&) {
  for (int64_t i = tile.row_begin; i < tile.row_end; ++i)
    std::memcpy(p.y + i * p.cols, p.x + p.rows[i] * p.cols, static_cast<size_t>(p.cols) * sizeof(float));
}

Status lower_gather_rows(LowerContext& c) {
  auto params = std::make_shared<GatherRowsParams>();
  params->cols = c.out().shape[1].constant();
  LoweredStage stage = c.output_stage<run_gather_rows>(params);
  stage.grid.row_parts = c.workers();
  stage.read(params->x, c.op().inputs[0], Reads::kAll);
  stage.read(params->rows, c.op().inputs[1], Reads::kAll);
  stage.write(params->y, c.op().outputs[0]);
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kGatherRowsOps[] = {{&kGatherRows, lower_gather_rows}};

}  // namespace

extern const CpuLowerings kGatherRowsLowerings = kGatherRowsOps;

}  // namespace redline
