#include "graph/ops/silu_mul.h"

#include "backends/cpu/lowering.h"

namespace redline {
namespace {

struct Attrs {
  void (*kernel)(const SiluMulArgs&);
  int64_t cols;
};

void run(const CpuStage& stage, const Tile& tile, const StepContext&, WorkerContext&) {
  const auto& a = stage.attrs_as<Attrs>();
  for (int64_t r = tile.row_begin; r < tile.row_end; ++r) {
    const int64_t at = r * a.cols + tile.col_begin;
    a.kernel({stage.operand<float>(0) + at, stage.operand<float>(1) + at, stage.operand<float>(2) + at,
              tile.col_end - tile.col_begin});
  }
}

Status lower(LowerContext& c) {
  LoweredStage stage = c.output_stage(run);
  // Split like the preceding projections, so that a tile starts as soon as its columns of gate and up are ready.
  stage.col_begin = LowerContext::cut_columns(stage.cols, kStripRows, c.workers() * 2);
  stage.reads = {{c.op().inputs[0], Reads::kTile}, {c.op().inputs[1], Reads::kTile}};
  stage.in_place_of = c.op().inputs[0];
  stage.attrs = std::make_shared<Attrs>(Attrs{c.kernels().silu_mul, stage.cols});
  c.add_stage(std::move(stage), {c.at(c.op().inputs[0]), c.at(c.op().inputs[1]), c.at(c.op().outputs[0])});
  return {};
}

}  // namespace

extern const CpuLowering kSiluMulLowering = {&kSiluMul, lower};

}  // namespace redline
