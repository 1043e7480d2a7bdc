#include "graph/ops/concat.h"

#include <cstring>

#include "backends/cpu/lowering.h"
#include "backends/cpu/prepared_output.h"
#include "graph/items.h"

namespace redline {
namespace {

struct RowsParams {
  RowsOpAttrs op;
  int64_t cols;
  std::vector<Operand<const float>> x;  // [inputs]
  Operand<float> y;
};

void run_rows(const RowsParams& p, const Tile& tile, const StepContext& step, WorkerContext&) {
  for_row_runs(p.op, step.sizes, tile.row_begin, tile.row_end, [&](size_t k, int64_t from, int64_t to, int64_t rows) {
    std::memcpy(p.y + to * p.cols, p.x[k] + from * p.cols, static_cast<size_t>(rows * p.cols) * sizeof(float));
  });
}

Status lower_rows(LowerContext& c) {
  const auto& op = std::any_cast<const RowsOpAttrs&>(c.op().attrs);
  const SymbolValues& bounds = c.options().bounds;
  auto params = std::make_shared<RowsParams>();
  params->op = op;
  params->cols = c.out().shape[1].constant();
  params->x.resize(op.rows.size());
  LoweredStage stage = c.output_stage<run_rows>(params);
  stage.grid.row_parts = c.workers();
  for (size_t k = 0; k < op.rows.size(); ++k) {
    if ((op.skip[k] + op.rows[k]).eval(bounds) > op.item_rows[k].eval(bounds))
      return invalid_argument("rows {} + {} are past the end of items of {}", op.skip[k].to_string(),
                              op.rows[k].to_string(), op.item_rows[k].to_string());
    stage.read(params->x[k], c.op().inputs[k], Reads::kAll);
  }
  stage.write(params->y, c.op().outputs[0]);
  c.add_stage(std::move(stage));
  return {};
}

struct ColsParams {
  int64_t a_cols, b_cols;
  bool cut_alike;  // the layouts allow a cut at the boundary between the inputs
  PreparedOutput out;
  Operand<const float> a, b;
  Operand<float> y;
};

void run_cols(const ColsParams& p, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const int64_t rows_now = p.out.rows.eval(step.sizes);
  const float* a = p.a + tile.row_begin * p.a_cols;
  const float* b = p.b + tile.row_begin * p.b_cols;
  if (p.cut_alike) {
    Tile part = tile;
    part.col_end = p.a_cols;
    p.out.write(a, p.a_cols, rows_now, part, p.y);
    part.col_begin = p.a_cols;
    part.col_end = tile.col_end;
    p.out.write(b, p.b_cols, rows_now, part, p.y);
    return;
  }
  p.out.write_parts(tile, rows_now, worker.scratch, p.y, [&](const Tile& part, float* y) {
    for (int64_t r = part.row_begin; r < part.row_end; ++r, y += p.out.cols) {
      std::memcpy(y, a + (r - tile.row_begin) * p.a_cols, static_cast<size_t>(p.a_cols) * sizeof(float));
      std::memcpy(y + p.a_cols, b + (r - tile.row_begin) * p.b_cols, static_cast<size_t>(p.b_cols) * sizeof(float));
    }
  });
}

Status lower_cols(LowerContext& c) {
  auto params = std::make_shared<ColsParams>();
  REDLINE_ASSIGN(params->out, PreparedOutput::make(c));
  params->a_cols = c.in(0).shape[1].constant();
  params->b_cols = c.in(1).shape[1].constant();
  params->cut_alike = c.out().layouts.only_f32() || params->a_cols % c.out().layouts.grain() == 0;
  LoweredStage stage = c.output_stage<run_cols>(params);
  stage.grid.row_parts = c.workers();
  stage.read(params->a, c.op().inputs[0], Reads::kRows);
  stage.read(params->b, c.op().inputs[1], Reads::kRows);
  stage.write(params->y, c.op().outputs[0]);
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kConcatOps[] = {
    {&kConcatRows, lower_rows},
    {&kSliceRows, lower_rows},
    {&kConcatCols, lower_cols},
};

}  // namespace

extern const CpuLowerings kConcatLowerings = kConcatOps;

}  // namespace redline
