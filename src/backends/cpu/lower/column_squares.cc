#include "graph/ops/column_squares.h"

#include "backends/cpu/lowering.h"

namespace redline {
namespace {

struct ColumnSquaresParams {
  int64_t cols;
  int workers;
  Dim rows;
  Operand<const float> x;
  Operand<float> y;
};

// Task i of n sums columns [cols i / n, cols (i + 1) / n).
void run_column_squares(const ColumnSquaresParams& p, const Tile& tile, const StepContext& step, WorkerContext&) {
  const int64_t begin = p.cols * tile.index / p.workers, end = p.cols * (tile.index + 1) / p.workers;
  const int64_t rows = p.rows.eval(step.sizes);
  const float* x = p.x;
  float* y = p.y;
  for (int64_t k = begin; k < end; ++k) y[k] = 0;
  for (int64_t m = 0; m < rows; ++m)
    for (int64_t k = begin; k < end; ++k) y[k] += x[m * p.cols + k] * x[m * p.cols + k];
}

Status lower_column_squares(LowerContext& c) {
  auto params = std::make_shared<ColumnSquaresParams>();
  params->cols = c.in(0).shape[1].constant();
  params->workers = c.workers();
  params->rows = c.in(0).shape[0];
  auto stage = LoweredStage::make<run_column_squares>(TaskGrid::work_partitions(c.workers(), params->cols), params);
  stage.read(params->x, c.op().inputs[0], Reads::kAll);
  stage.write(params->y, c.op().outputs[0]);
  c.add_stage(std::move(stage));
  return {};
}

struct ExpertParams {
  ExpertSquaresAttrs a;
  int64_t cols;
  int workers;
  Operand<const float> x;
  Operand<const int32_t> offsets, order;
  Operand<float> y;
};

// Task i of n computes experts i, i + n, i + 2 n, ...
void run_experts(const ExpertParams& p, const Tile& tile, const StepContext&, WorkerContext&) {
  for (int64_t e = tile.index; e < p.a.num_experts; e += p.workers) {
    float* y = p.y + e * (p.cols + 1);
    for (int64_t k = 0; k < p.cols; ++k) y[k] = 0;
    for (int64_t i = p.offsets[e]; i < p.offsets[e + 1]; ++i) {
      const int64_t row = p.a.by_expert ? i : p.order[i] / p.a.experts_per_token;
      const float* x = p.x + row * p.cols;
      for (int64_t k = 0; k < p.cols; ++k) y[k] += x[k] * x[k];
    }
    y[p.cols] = static_cast<float>(p.offsets[e + 1] - p.offsets[e]);
  }
}

Status lower_experts(LowerContext& c) {
  const auto& in = c.op().inputs;
  auto params = std::make_shared<ExpertParams>();
  params->a = std::any_cast<const ExpertSquaresAttrs&>(c.op().attrs);
  params->cols = c.in(0).shape[1].constant();
  params->workers = c.workers();
  auto stage = LoweredStage::make<run_experts>(TaskGrid::work_partitions(c.workers(), params->cols), params);
  stage.read(params->x, in[0], Reads::kAll);
  stage.read(params->offsets, in[1], Reads::kAll);
  stage.read(params->order, in[2], Reads::kAll);
  stage.write(params->y, c.op().outputs[0]);
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kColumnSquaresOps[] = {
    {&kColumnSquares, lower_column_squares},
    {&kExpertSquares, lower_experts},
};

}  // namespace

extern const CpuLowerings kColumnSquaresLowerings = kColumnSquaresOps;

}  // namespace redline
