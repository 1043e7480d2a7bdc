#include "graph/ops/concat.h"

#include <cstring>

#include "backends/cpu/lowering.h"
#include "backends/cpu/prepared_output.h"
#include "graph/items.h"

namespace redline {
namespace {

// operands: y, inputs
void run_rows(const CpuStage& stage, const Tile& tile, const StepContext& step, WorkerContext&) {
  const int64_t cols = stage.plan->cols;
  for_row_runs(stage.attrs_as<RowsOpAttrs>(), step.sizes, tile.row_begin, tile.row_end,
               [&](size_t k, int64_t from, int64_t to, int64_t rows) {
                 std::memcpy(stage.operand<float>(0) + to * cols, stage.operand<float>(1 + k) + from * cols,
                             static_cast<size_t>(rows * cols) * sizeof(float));
               });
}

Status lower_rows(LowerContext& c) {
  const auto& op = std::any_cast<const RowsOpAttrs&>(c.op().attrs);
  const SymbolValues& bounds = c.options().bounds;
  LoweredStage stage = c.output_stage(run_rows);
  stage.row_tiles = c.workers();
  std::vector<LowerContext::Operand> operands = {c.at(c.op().outputs[0])};
  for (size_t k = 0; k < op.rows.size(); ++k) {
    if ((op.skip[k] + op.rows[k]).eval(bounds) > op.item_rows[k].eval(bounds))
      return invalid_argument("rows {} + {} are past the end of items of {}", op.skip[k].to_string(),
                              op.rows[k].to_string(), op.item_rows[k].to_string());
    stage.reads.push_back({c.op().inputs[k], Reads::kAll});
    operands.push_back(c.at(c.op().inputs[k]));
  }
  stage.attrs = std::make_shared<RowsOpAttrs>(op);
  c.add_stage(std::move(stage), operands);
  return {};
}

struct ColsAttrs {
  int64_t a_cols, b_cols;
  bool cut_alike;  ///< the layouts allow a cut at the boundary between the inputs
  PreparedOutput out;
};

// operands: a, b, y
void run_cols(const CpuStage& stage, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const auto& s = stage.attrs_as<ColsAttrs>();
  const int64_t rows_now = s.out.rows.eval(step.sizes);
  const float* a = stage.operand<float>(0) + tile.row_begin * s.a_cols;
  const float* b = stage.operand<float>(1) + tile.row_begin * s.b_cols;
  if (s.cut_alike) {
    Tile part = tile;
    part.col_end = s.a_cols;
    s.out.write(a, s.a_cols, rows_now, part, stage.operands[2]);
    part.col_begin = s.a_cols;
    part.col_end = tile.col_end;
    s.out.write(b, s.b_cols, rows_now, part, stage.operands[2]);
    return;
  }
  s.out.write_parts(tile, rows_now, worker.scratch, stage.operands[2], [&](const Tile& part, float* y) {
    for (int64_t r = part.row_begin; r < part.row_end; ++r, y += s.out.cols) {
      std::memcpy(y, a + (r - tile.row_begin) * s.a_cols, static_cast<size_t>(s.a_cols) * sizeof(float));
      std::memcpy(y + s.a_cols, b + (r - tile.row_begin) * s.b_cols, static_cast<size_t>(s.b_cols) * sizeof(float));
    }
  });
}

Status lower_cols(LowerContext& c) {
  REDLINE_ASSIGN(const PreparedOutput out, PreparedOutput::make(c));
  LoweredStage stage = c.output_stage(run_cols);
  const int64_t a_cols = c.in(0).shape[1].constant();
  stage.row_tiles = c.workers();
  stage.reads = {{c.op().inputs[0], Reads::kRows}, {c.op().inputs[1], Reads::kRows}};
  const bool cut_alike = c.out().layouts.only_f32() || a_cols % c.out().layouts.grain() == 0;
  stage.attrs = std::make_shared<ColsAttrs>(ColsAttrs{a_cols, c.in(1).shape[1].constant(), cut_alike, out});
  c.add_stage(std::move(stage), {c.at(c.op().inputs[0]), c.at(c.op().inputs[1]), c.at(c.op().outputs[0])});
  return {};
}

}  // namespace

extern const CpuLowering kConcatRowsLowering = {&kConcatRows, lower_rows};
extern const CpuLowering kSliceRowsLowering = {&kSliceRows, lower_rows};
extern const CpuLowering kConcatColsLowering = {&kConcatCols, lower_cols};

}  // namespace redline
