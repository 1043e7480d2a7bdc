#include "graph/ops/prepare_x.h"

#include "backends/cpu/lowering.h"
#include "backends/cpu/prepared_output.h"

namespace redline {
namespace {

struct PrepareXParams {
  PreparedOutput out;
  Operand<const float> x;
  Operand<uint8_t> y;
};

void run_prepare_x(const PrepareXParams& p, const Tile& tile, const StepContext& step, WorkerContext&) {
  const int64_t cols = p.out.cols;
  p.out.write(p.x + tile.row_begin * cols + tile.col_begin, cols, p.out.rows.eval(step.sizes), tile, p.y);
}

Status lower_prepare_x(LowerContext& c) {
  auto params = std::make_shared<PrepareXParams>();
  REDLINE_ASSIGN(params->out, PreparedOutput::make(c));
  LoweredStage stage = c.output_stage<run_prepare_x>(params);
  stage.grid.row_parts = c.workers();
  stage.row_cuts = RowCuts::kAtRows;
  stage.read(params->x, c.op().inputs[0], Reads::kTile);
  stage.write(params->y, c.op().outputs[0]);
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kPrepareXOps[] = {{&kPrepareX, lower_prepare_x}};

}  // namespace

extern const CpuLowerings kPrepareXLowerings = kPrepareXOps;

}  // namespace redline
