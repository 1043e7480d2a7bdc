#include "graph/ops/concat.h"

#include "graph/items.h"
#include "graph/reference.h"

namespace redline {
namespace {

bool is_matrix(const ValueInfo& v) { return v.dtype == DType::kF32 && v.shape.size() == 2 && v.shape[1].is_constant(); }

}  // namespace

Value concat_rows(GraphBuilder& g, Value a, Value b, const Dim& batch, const Dim& a_rows, const Dim& b_rows) {
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
               RowsOpAttrs{{a_rows, b_rows}, {a_rows, b_rows}, {0, 0}});
}

Value slice_rows(GraphBuilder& g, Value x, const Dim& batch, const Dim& item_rows, const Dim& skip, const Dim& rows) {
  if (!x.valid()) return {};
  const ValueInfo& xi = g.info(x);
  if (!is_matrix(xi) || !(xi.shape[0] == batch * item_rows))
    return g.fail(invalid_argument("slice_rows: {} is not f32, {} items of {} rows", to_string(xi.shape),
                                   batch.to_string(), item_rows.to_string()));
  return g.add(kSliceRows, {x}, DType::kF32, {batch * rows, xi.shape[1]}, RowsOpAttrs{{rows}, {item_rows}, {skip}});
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

Status reference_rows(ReferenceContext& c) {
  HostTensor& y = c.out();
  for_row_runs(c.attrs<RowsOpAttrs>(), c.sizes(), 0, y.rows(), [&](size_t k, int64_t from, int64_t to, int64_t rows) {
    std::copy_n(c.in(k).row(from), rows * y.cols(), y.row(to));
  });
  return {};
}

Status reference_cols(ReferenceContext& c) {
  for (int64_t r = 0; r < c.out().rows(); ++r)
    for (size_t k = 0; k < 2; ++k)
      std::copy_n(c.in(k).row(r), c.in(k).cols(), c.out().row(r) + (k ? c.in(0).cols() : 0));
  return {};
}

std::string describe_rows(const std::any& any) {
  const auto& op = std::any_cast<const RowsOpAttrs&>(any);
  std::string text;
  for (size_t k = 0; k < op.rows.size(); ++k)
    text += fmt::format("{}{} from {} of {}", k ? ", " : "", op.rows[k].to_string(), op.skip[k].to_string(),
                        op.item_rows[k].to_string());
  return text;
}

}  // namespace

const OpDef kConcatRows = {"concat_rows", reference_rows, describe_rows};

const OpDef kSliceRows = {"slice_rows", reference_rows, describe_rows};

const OpDef kConcatCols = {.name = "concat_cols", .reference = reference_cols, .prepares_output = true};

}  // namespace redline
