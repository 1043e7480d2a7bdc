#include "graph/ops/concat.h"

#include "graph/items.h"
#include "graph/lower.h"
#include "graph/prepared_output.h"
#include "graph/reference.h"

namespace redline {
namespace {

/// Items of y are rows [skip[k], skip[k] + rows[k]) of the same items of input k, one input after the other.
struct RowsOp {
  std::vector<Dim> rows, item_rows, skip;  ///< [inputs]
};

bool is_matrix(const ValueInfo& v) { return v.dtype == DType::kF32 && v.shape.size() == 2 && v.shape[1].is_constant(); }

}  // namespace

Value concat_rows(GraphBuilder& g, Value a, Value b, Dim batch, Dim a_rows, Dim b_rows) {
  if (!a.valid() || !b.valid()) return {};
  const ValueInfo& ai = g.info(a);
  const ValueInfo& bi = g.info(b);
  if (!is_matrix(ai) || !is_matrix(bi) || !(ai.shape[1] == bi.shape[1]))
    return g.fail(invalid_argument("concat_rows: {} and {} are not f32 matrices of the same columns",
                                   to_string(ai.shape), to_string(bi.shape)));
  if (!(ai.shape[0] == batch * a_rows) || !(bi.shape[0] == batch * b_rows))
    return g.fail(invalid_argument("concat_rows: {} and {} are not {} items of {} and {} rows", to_string(ai.shape),
                                   to_string(bi.shape), batch.to_string(), a_rows.to_string(), b_rows.to_string()));
  return g.add(kConcatRows, {a, b}, DType::kF32, {batch * (a_rows + b_rows), ai.shape[1]},
               RowsOp{{a_rows, b_rows}, {a_rows, b_rows}, {0, 0}});
}

Value slice_rows(GraphBuilder& g, Value x, Dim batch, Dim item_rows, Dim skip, Dim rows) {
  if (!x.valid()) return {};
  const ValueInfo& xi = g.info(x);
  if (!is_matrix(xi) || !(xi.shape[0] == batch * item_rows))
    return g.fail(invalid_argument("slice_rows: {} is not f32, {} items of {} rows", to_string(xi.shape),
                                   batch.to_string(), item_rows.to_string()));
  return g.add(kSliceRows, {x}, DType::kF32, {batch * rows, xi.shape[1]}, RowsOp{{rows}, {item_rows}, {skip}});
}

Value concat_cols(GraphBuilder& g, Value a, Value b) {
  if (!a.valid() || !b.valid()) return {};
  const ValueInfo& ai = g.info(a);
  const ValueInfo& bi = g.info(b);
  if (!is_matrix(ai) || !is_matrix(bi) || !(ai.shape[0] == bi.shape[0]))
    return g.fail(invalid_argument("concat_cols: {} and {} are not f32 matrices of the same rows", to_string(ai.shape),
                                   to_string(bi.shape)));
  return g.add(kConcatCols, {a, b}, DType::kF32, {ai.shape[0], ai.shape[1] + bi.shape[1]});
}

namespace {

/// copy(k, from, to, rows) for the runs of rows of input k, from row `from`, that become rows of y from `to` on; together
/// rows [begin, end) of y.
template <class Copy>
void for_runs(const RowsOp& op, const SymbolValues& sizes, int64_t begin, int64_t end, const Copy& copy) {
  int64_t y_item_rows = 0;
  for (const Dim& rows : op.rows) y_item_rows += rows.eval(sizes);
  for_items(begin, end, y_item_rows, [&](int64_t item, int64_t from, int64_t to) {
    int64_t first = item * y_item_rows;
    for (size_t k = 0; k < op.rows.size(); ++k) {
      const int64_t last = first + op.rows[k].eval(sizes);
      const int64_t run_begin = std::max(first, from), run_end = std::min(last, to);
      if (run_begin < run_end)
        copy(k, item * op.item_rows[k].eval(sizes) + op.skip[k].eval(sizes) + run_begin - first, run_begin,
             run_end - run_begin);
      first = last;
    }
  });
}

Status reference_rows(ReferenceContext& c) {
  HostTensor& y = c.out();
  for_runs(c.attrs<RowsOp>(), c.sizes(), 0, y.rows(), [&](size_t k, int64_t from, int64_t to, int64_t rows) {
    std::copy_n(c.in(k).row(from), rows * y.cols(), y.row(to));
  });
  return {};
}

// operands: y, inputs
void run_rows(const Stage& stage, const Tile& tile, const StepContext& step, WorkerContext&) {
  const int64_t cols = stage.cols;
  for_runs(stage.attrs_as<RowsOp>(), step.sizes, tile.row_begin, tile.row_end,
           [&](size_t k, int64_t from, int64_t to, int64_t rows) {
             std::memcpy(stage.operand<float>(0) + to * cols, stage.operand<float>(1 + k) + from * cols,
                         static_cast<size_t>(rows * cols) * sizeof(float));
           });
}

Status lower_rows(LowerContext& c) {
  const auto& op = std::any_cast<const RowsOp&>(c.op().attrs);
  const SymbolValues& bounds = c.options().bounds;
  Stage stage = c.output_stage(run_rows);
  stage.row_tiles = c.workers();
  std::vector<LowerContext::Operand> operands = {c.at(c.op().outputs[0])};
  for (size_t k = 0; k < op.rows.size(); ++k) {
    if ((op.skip[k] + op.rows[k]).eval(bounds) > op.item_rows[k].eval(bounds))
      return invalid_argument("rows {} + {} are past the end of items of {}", op.skip[k].to_string(),
                              op.rows[k].to_string(), op.item_rows[k].to_string());
    stage.reads.push_back({c.op().inputs[k], Reads::kAll});
    operands.push_back(c.at(c.op().inputs[k]));
  }
  stage.attrs = std::make_shared<RowsOp>(op);
  c.add_stage(std::move(stage), operands);
  return {};
}

Status reference_cols(ReferenceContext& c) {
  for (int64_t r = 0; r < c.out().rows(); ++r)
    for (size_t k = 0; k < 2; ++k)
      std::copy_n(c.in(k).row(r), c.in(k).cols(), c.out().row(r) + (k ? c.in(0).cols() : 0));
  return {};
}

struct ColsAttrs {
  int64_t a_cols, b_cols;
  bool cut_alike;  ///< forms may be cut where the inputs meet
  PreparedOutput out;
};

// operands: a, b, y
void run_cols(const Stage& stage, const Tile& tile, const StepContext& step, WorkerContext& worker) {
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
  Stage stage = c.output_stage(run_cols);
  const int64_t a_cols = c.in(0).shape[1].constant();
  stage.row_tiles = c.workers();
  stage.reads = {{c.op().inputs[0], Reads::kRows}, {c.op().inputs[1], Reads::kRows}};
  const bool cut_alike = c.out().forms.only_f32() || a_cols % c.out().forms.grain() == 0;
  stage.attrs = std::make_shared<ColsAttrs>(ColsAttrs{a_cols, c.in(1).shape[1].constant(), cut_alike, out});
  c.add_stage(std::move(stage), {c.at(c.op().inputs[0]), c.at(c.op().inputs[1]), c.at(c.op().outputs[0])});
  return {};
}

std::string describe_rows(const std::any& any) {
  const auto& op = std::any_cast<const RowsOp&>(any);
  std::string text;
  for (size_t k = 0; k < op.rows.size(); ++k)
    text += fmt::format("{}{} from {} of {}", k ? ", " : "", op.rows[k].to_string(), op.skip[k].to_string(),
                        op.item_rows[k].to_string());
  return text;
}

}  // namespace

const OpDef kConcatRows = {"concat_rows", reference_rows, lower_rows, describe_rows};
const OpDef kSliceRows = {"slice_rows", reference_rows, lower_rows, describe_rows};
const OpDef kConcatCols = {
    .name = "concat_cols", .reference = reference_cols, .lower = lower_cols, .prepares_output = true};

}  // namespace redline
