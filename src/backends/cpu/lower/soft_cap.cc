#include "graph/ops/soft_cap.h"

#include "backends/cpu/lowering.h"

namespace redline {
namespace {

struct SoftCapParams {
  void (*kernel)(const SoftCapArgs&);
  int64_t cols;
  float cap;
  Operand<const float> x;
  Operand<float> y;
};

void run_soft_cap(const SoftCapParams& p, const Tile& tile, const StepContext&, WorkerContext&) {
  for (int64_t row = tile.row_begin; row < tile.row_end; ++row) {
    const int64_t at = row * p.cols + tile.col_begin;
    p.kernel({.x = p.x + at, .y = p.y + at, .count = tile.col_end - tile.col_begin, .cap = p.cap});
  }
}

Status lower_soft_cap(LowerContext& c) {
  auto params = std::make_shared<SoftCapParams>();
  params->kernel = c.kernels().soft_cap;
  params->cols = c.out().shape[1].constant();
  params->cap = std::any_cast<SoftCapAttrs>(c.op().attrs).cap;
  LoweredStage stage = c.output_stage<run_soft_cap>(params);
  constexpr int64_t kGrain = 1024;  // logits are one row of very many columns
  stage.grid.col_begin = LowerContext::cut_columns(stage.grid.cols, kGrain, c.workers());
  stage.read(params->x, c.op().inputs[0], Reads::kTile);
  stage.write(params->y, c.op().outputs[0]);
  stage.in_place_of = c.op().inputs[0];
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kSoftCapOps[] = {{&kSoftCap, lower_soft_cap}};

}  // namespace

extern const CpuLowerings kSoftCapLowerings = kSoftCapOps;

}  // namespace redline
