#include "graph/ops/add.h"

#include "backends/cpu/lowering.h"

namespace redline {
namespace {

struct Attrs {
  void (*kernel)(const AddArgs&);
  int64_t cols;
};

void run(const CpuStage& stage, const Tile& tile, const StepContext&, WorkerContext&) {
  const auto& a = stage.attrs_as<Attrs>();
  const int64_t at = tile.row_begin * a.cols;
  a.kernel({stage.operand<float>(0) + at, stage.operand<float>(1) + at, stage.operand<float>(2) + at,
            (tile.row_end - tile.row_begin) * a.cols});
}

Status lower(LowerContext& c) {
  LoweredStage stage = c.output_stage(run);
  stage.row_tiles = c.workers();
  stage.reads = {{c.op().inputs[0], Reads::kTile}, {c.op().inputs[1], Reads::kTile}};
  stage.in_place_of = c.op().inputs[0];
  stage.attrs = std::make_shared<Attrs>(Attrs{c.kernels().add, stage.cols});
  c.add_stage(std::move(stage), {c.at(c.op().inputs[0]), c.at(c.op().inputs[1]), c.at(c.op().outputs[0])});
  return {};
}

// operands: x, row, y
void run_row(const CpuStage& stage, const Tile& tile, const StepContext&, WorkerContext&) {
  const auto& a = stage.attrs_as<Attrs>();
  for (int64_t r = tile.row_begin; r < tile.row_end; ++r)
    a.kernel(
        {stage.operand<float>(0) + r * a.cols, stage.operand<float>(1), stage.operand<float>(2) + r * a.cols, a.cols});
}

Status lower_row(LowerContext& c) {
  REDLINE_ASSIGN(void* row, c.dense_weight(1));
  LoweredStage stage = c.output_stage(run_row);
  stage.row_tiles = c.workers();
  stage.reads = {{c.op().inputs[0], Reads::kTile}};
  stage.in_place_of = c.op().inputs[0];
  stage.attrs = std::make_shared<Attrs>(Attrs{c.kernels().add, stage.cols});
  c.add_stage(std::move(stage), {c.at(c.op().inputs[0]), c.at(row), c.at(c.op().outputs[0])});
  return {};
}

}  // namespace

extern const CpuLowering kAddLowering = {&kAdd, lower};
extern const CpuLowering kAddRowLowering = {&kAddRow, lower_row};

}  // namespace redline
