#include "graph/ops/column_squares.h"

#include "backends/cpu/lowering.h"

namespace redline {
namespace {

struct StageParams {
  int64_t cols;
  int workers;
  Dim rows;
  Operand<const float> x;
  Operand<float> y;
};

// Task i of n sums columns [cols i / n, cols (i + 1) / n).
void run(const StageParams& p, const Tile& tile, const StepContext& step, WorkerContext&) {
  const int64_t begin = p.cols * tile.index / p.workers, end = p.cols * (tile.index + 1) / p.workers;
  const int64_t rows = p.rows.eval(step.sizes);
  const float* x = p.x;
  float* y = p.y;
  for (int64_t k = begin; k < end; ++k) y[k] = 0;
  for (int64_t m = 0; m < rows; ++m)
    for (int64_t k = begin; k < end; ++k) y[k] += x[m * p.cols + k] * x[m * p.cols + k];
}

Status lower(LowerContext& c) {
  auto params = std::make_shared<StageParams>();
  params->cols = c.in(0).shape[1].constant();
  params->workers = c.workers();
  params->rows = c.in(0).shape[0];
  auto stage = LoweredStage::make<run>(TaskGrid::work_partitions(c.workers(), params->cols), params);
  stage.read(params->x, c.op().inputs[0], Reads::kAll);
  stage.write(params->y, c.op().outputs[0]);
  c.add_stage(std::move(stage));
  return {};
}

}  // namespace

extern const CpuLowering kColumnSquaresLowering = {&kColumnSquares, lower};

}  // namespace redline
