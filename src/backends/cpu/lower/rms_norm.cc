#include "graph/ops/rms_norm.h"

#include "backends/cpu/lowering.h"
#include "backends/cpu/prepared_output.h"

namespace redline {
namespace {

struct RmsNormParams {
  void (*kernel)(const RmsNormArgs&);
  int64_t cols, row_stride;
  float eps;
  PreparedOutput out;
  const float* weight;
  Operand<const float> x;
  Operand<float> y;
};

void norm(const RmsNormParams& p, const float* x, int64_t rows, float* y) {
  p.kernel({.x = x, .weight = p.weight, .y = y, .rows = rows, .cols = p.cols, .eps = p.eps});
}

// A tile covers some rows and some whole groups of each.
void run_rms_norm(const RmsNormParams& p, const Tile& tile, const StepContext&, WorkerContext&) {
  const int64_t groups = (tile.col_end - tile.col_begin) / p.cols;
  if (groups * p.cols == p.row_stride) {
    const int64_t at = tile.row_begin * p.row_stride;
    return norm(p, p.x + at, (tile.row_end - tile.row_begin) * groups, p.y + at);
  }
  for (int64_t r = tile.row_begin; r < tile.row_end; ++r) {
    const int64_t at = r * p.row_stride + tile.col_begin;
    norm(p, p.x + at, groups, p.y + at);
  }
}

// Computes a tile whose output is stored in the layouts of linear ops: a few whole rows at a time through scratch.
void run_prepared(const RmsNormParams& p, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  p.out.write_parts(tile, p.out.rows.eval(step.sizes), worker.scratch, p.y, [&](const Tile& part, float* rows) {
    norm(p, p.x + part.row_begin * p.row_stride, (part.row_end - part.row_begin) * (p.row_stride / p.cols), rows);
  });
}

Status lower_rms_norm(LowerContext& c) {
  const bool prepared = !c.out().layouts.only_f32();
  auto params = std::make_shared<RmsNormParams>();
  params->kernel = c.kernels().rms_norm;
  params->cols = c.in(1).shape[0].constant();
  params->row_stride = c.in(0).shape[1].constant();
  params->eps = std::any_cast<RmsNormAttrs>(c.op().attrs).eps;
  REDLINE_ASSIGN(params->weight, c.dense_weight(1));
  if (prepared) {
    REDLINE_ASSIGN(params->out, PreparedOutput::make(c));
  }
  LoweredStage stage = prepared ? c.output_stage<run_prepared>(params) : c.output_stage<run_rms_norm>(params);
  // Head norms are split by heads like the preceding projection; the norm of a hidden state is one group, so it is
  // split by rows.
  if (!prepared) stage.grid.col_begin = LowerContext::cut_columns(params->row_stride, params->cols, c.workers());
  if (stage.grid.col_tiles() == 1) stage.grid.row_parts = c.workers();
  stage.row_cuts = RowCuts::kAtRows;
  stage.read(params->x, c.op().inputs[0], Reads::kTile);
  stage.write(params->y, c.op().outputs[0]);
  if (!prepared) stage.in_place_of = c.op().inputs[0];
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kRmsNormOps[] = {{&kRmsNorm, lower_rms_norm}};

}  // namespace

extern const CpuLowerings kRmsNormLowerings = kRmsNormOps;

}  // namespace redline
