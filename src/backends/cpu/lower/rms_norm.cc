#include "graph/ops/rms_norm.h"

#include "backends/cpu/lowering.h"
#include "backends/cpu/prepared_output.h"

namespace redline {
namespace {

struct Attrs {
  void (*kernel)(const RmsNormArgs&);
  int64_t cols, row_stride;
  float eps;
  PreparedOutput out;
};

// A tile covers some rows and some whole groups of each.
void run(const CpuStage& stage, const Tile& tile, const StepContext&, WorkerContext&) {
  const auto& a = stage.attrs_as<Attrs>();
  const auto* x = stage.operand<float>(0);
  auto* y = stage.operand<float>(2);
  const int64_t groups = (tile.col_end - tile.col_begin) / a.cols;
  if (groups * a.cols == a.row_stride) {
    const int64_t at = tile.row_begin * a.row_stride;
    a.kernel({x + at, stage.operand<float>(1), y + at, (tile.row_end - tile.row_begin) * groups, a.cols, a.eps});
    return;
  }
  for (int64_t r = tile.row_begin; r < tile.row_end; ++r) {
    const int64_t at = r * a.row_stride + tile.col_begin;
    a.kernel({x + at, stage.operand<float>(1), y + at, groups, a.cols, a.eps});
  }
}

// For linear ops: a few whole rows at a time through scratch.
void run_prepared(const CpuStage& stage, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const auto& a = stage.attrs_as<Attrs>();
  a.out.write_parts(tile, a.out.rows.eval(step.sizes), worker.scratch, stage.operands[2],
                    [&](const Tile& part, float* rows) {
                      a.kernel({stage.operand<float>(0) + part.row_begin * a.row_stride, stage.operand<float>(1), rows,
                                (part.row_end - part.row_begin) * (a.row_stride / a.cols), a.cols, a.eps});
                    });
}

Status lower(LowerContext& c) {
  const int64_t cols = c.in(1).shape[0].constant();
  const int64_t row_stride = c.in(0).shape[1].constant();
  REDLINE_ASSIGN(void* weight, c.dense_weight(1));
  const bool prepared = !c.out().layouts.only_f32();
  PreparedOutput out;
  if (prepared) {
    REDLINE_ASSIGN(out, PreparedOutput::make(c));
  }
  LoweredStage stage = c.output_stage(prepared ? run_prepared : run);
  // Head norms are split by heads like the preceding projection; the norm of a hidden state is one group, so it is
  // split by rows.
  if (!prepared) stage.col_begin = LowerContext::cut_columns(row_stride, cols, c.workers());
  else stage.col_begin = {0, row_stride};
  if (stage.col_tiles() == 1) stage.row_tiles = c.workers();
  stage.reads = {{c.op().inputs[0], Reads::kTile}};
  if (!prepared) stage.in_place_of = c.op().inputs[0];
  stage.attrs = std::make_shared<Attrs>(
      Attrs{c.kernels().rms_norm, cols, row_stride, std::any_cast<RmsNormAttrs>(c.op().attrs).eps, out});
  c.add_stage(std::move(stage), {c.at(c.op().inputs[0]), c.at(weight), c.at(c.op().outputs[0])});
  return {};
}

}  // namespace

extern const CpuLowering kRmsNormLowering = {&kRmsNorm, lower};

}  // namespace redline
