#include <cmath>

#include "backends/cpu/lowering.h"
#include "graph/ops/expert_linear.h"

namespace redline {
namespace {

struct ExpertSumParams {
  int64_t choices, cols;
  Operand<const float> x, weights;
  Operand<const float> shared, gate;  // null if absent
  Operand<float> y;
};

void run_expert_sum(const ExpertSumParams& p, const Tile& tile, const StepContext&, WorkerContext&) {
  const auto add = [&](float* y, const float* x, float weight, bool first) {
    if (first)
      for (int64_t c = tile.col_begin; c < tile.col_end; ++c) y[c] = weight * x[c];
    else
      for (int64_t c = tile.col_begin; c < tile.col_end; ++c) y[c] += weight * x[c];
  };
  for (int64_t t = tile.row_begin; t < tile.row_end; ++t) {
    float* y = p.y + t * p.cols;
    for (int64_t i = 0; i < p.choices; ++i)
      add(y, p.x + (t * p.choices + i) * p.cols, p.weights[t * p.choices + i], i == 0);
    if (p.shared) add(y, p.shared + t * p.cols, p.gate ? 1 / (1 + std::exp(-p.gate[t])) : 1.0f, false);
  }
}

Status lower_expert_sum(LowerContext& c) {
  const auto& in = c.op().inputs;
  auto params = std::make_shared<ExpertSumParams>();
  params->choices = c.in(1).shape[1].constant();
  params->cols = c.out().shape[1].constant();
  LoweredStage stage = c.output_stage<run_expert_sum>(params);
  stage.grid.row_parts = c.workers();
  stage.read(params->x, in[0], Reads::kAll);
  stage.read(params->weights, in[1], Reads::kAll);
  if (in.size() > 2) stage.read(params->shared, in[2], Reads::kTile);
  if (in.size() > 3) stage.read(params->gate, in[3], Reads::kRows);
  stage.write(params->y, c.op().outputs[0]);
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kExpertSumOps[] = {{&kExpertSum, lower_expert_sum}};

}  // namespace

extern const CpuLowerings kExpertSumLowerings = kExpertSumOps;

}  // namespace redline
