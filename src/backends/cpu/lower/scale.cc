#include "graph/ops/scale.h"

#include "backends/cpu/lowering.h"

namespace redline {
namespace {

struct ScaleParams {
  int64_t cols;
  float factor;
  Operand<const float> x;
  Operand<float> y;
};

// A loop of one multiplication is bound by memory on every machine, so it has no kernel.
void run_scale(const ScaleParams& p, const Tile& tile, const StepContext&, WorkerContext&) {
  const float* x = p.x + tile.row_begin * p.cols;
  float* y = p.y + tile.row_begin * p.cols;
  const int64_t count = (tile.row_end - tile.row_begin) * p.cols;
  for (int64_t i = 0; i < count; ++i) y[i] = p.factor * x[i];
}

Status lower_scale(LowerContext& c) {
  auto params = std::make_shared<ScaleParams>();
  params->cols = c.out().shape[1].constant();
  params->factor = std::any_cast<ScaleAttrs>(c.op().attrs).factor;
  LoweredStage stage = c.output_stage<run_scale>(params);
  stage.grid.row_parts = c.workers();
  stage.read(params->x, c.op().inputs[0], Reads::kTile);
  stage.write(params->y, c.op().outputs[0]);
  stage.in_place_of = c.op().inputs[0];
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kScaleOps[] = {{&kScale, lower_scale}};

}  // namespace

extern const CpuLowerings kScaleLowerings = kScaleOps;

}  // namespace redline
