#include "graph/ops/silu_mul.h"

#include "backends/cpu/lowering.h"

namespace redline {
namespace {

struct SiluMulParams {
  void (*kernel)(const SiluMulArgs&);
  int64_t cols;
  Operand<const float> gate, up;
  Operand<float> y;
};

void run_silu_mul(const SiluMulParams& p, const Tile& tile, const StepContext&, WorkerContext&) {
  for (int64_t r = tile.row_begin; r < tile.row_end; ++r) {
    const int64_t at = r * p.cols + tile.col_begin;
    p.kernel({.gate = p.gate + at, .up = p.up + at, .y = p.y + at, .count = tile.col_end - tile.col_begin});
  }
}

Status lower_silu_mul(LowerContext& c) {
  auto params = std::make_shared<SiluMulParams>();
  params->kernel = c.kernels().silu_mul;
  params->cols = c.out().shape[1].constant();
  LoweredStage stage = c.output_stage<run_silu_mul>(params);
  // Split like the preceding projections, so that a tile starts as soon as its columns of gate and up are ready.
  stage.grid.col_begin = LowerContext::cut_columns(stage.grid.cols, kRowPanelRows, c.workers() * 2);
  stage.read(params->gate, c.op().inputs[0], Reads::kTile);
  stage.read(params->up, c.op().inputs[1], Reads::kTile);
  stage.write(params->y, c.op().outputs[0]);
  stage.in_place_of = c.op().inputs[0];
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kSiluMulOps[] = {{&kSiluMul, lower_silu_mul}};

}  // namespace

extern const CpuLowerings kSiluMulLowerings = kSiluMulOps;

}  // namespace redline
