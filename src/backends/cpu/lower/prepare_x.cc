#include "graph/ops/prepare_x.h"

#include "backends/cpu/lowering.h"
#include "backends/cpu/prepared_output.h"

namespace redline {
namespace {

struct Attrs {
  PreparedOutput out;
};

void run(const CpuStage& stage, const Tile& tile, const StepContext& step, WorkerContext&) {
  const auto& a = stage.attrs_as<Attrs>();
  const int64_t cols = a.out.cols;
  a.out.write(stage.operand<float>(0) + tile.row_begin * cols + tile.col_begin, cols, a.out.rows.eval(step.sizes), tile,
              stage.operands[1]);
}

Status lower(LowerContext& c) {
  LoweredStage stage = c.output_stage(run);
  REDLINE_ASSIGN(const PreparedOutput out, PreparedOutput::make(c));
  // A single row is split by columns, several rows by rows.
  stage.row_tiles = c.workers();
  stage.reads = {{c.op().inputs[0], Reads::kTile}};
  stage.attrs = std::make_shared<Attrs>(Attrs{out});
  c.add_stage(std::move(stage), {c.at(c.op().inputs[0]), c.at(c.op().outputs[0])});
  return {};
}

}  // namespace

extern const CpuLowering kPrepareXLowering = {&kPrepareX, lower};

}  // namespace redline
