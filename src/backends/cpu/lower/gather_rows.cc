#include "graph/ops/gather_rows.h"

#include <cstring>

#include "backends/cpu/lowering.h"

namespace redline {
namespace {

struct Attrs {
  int64_t cols;
};

void run(const CpuStage& stage, const Tile& tile, const StepContext&, WorkerContext&) {
  const int64_t cols = stage.attrs_as<Attrs>().cols;
  for (int64_t i = tile.row_begin; i < tile.row_end; ++i)
    std::memcpy(stage.operand<float>(2) + i * cols, stage.operand<float>(0) + stage.operand<int32_t>(1)[i] * cols,
                static_cast<size_t>(cols) * sizeof(float));
}

Status lower(LowerContext& c) {
  LoweredStage stage = c.output_stage(run);
  stage.row_tiles = c.workers();
  stage.reads = {{c.op().inputs[0], Reads::kAll}, {c.op().inputs[1], Reads::kAll}};
  stage.attrs = std::make_shared<Attrs>(Attrs{stage.cols});
  c.add_stage(std::move(stage), {c.at(c.op().inputs[0]), c.at(c.op().inputs[1]), c.at(c.op().outputs[0])});
  return {};
}

}  // namespace

extern const CpuLowering kGatherRowsLowering = {&kGatherRows, lower};

}  // namespace redline
