#include "graph/ops/gated_add.h"

#include "graph/reference.h"

namespace redline {

Value gated_add(GraphBuilder& g, Value a, Value b, Value table, int64_t column, const Dim& rows_per_item) {
  if (!a.valid() || !b.valid() || !table.valid()) return {};
  const ValueInfo& ai = g.info(a);
  const ValueInfo& bi = g.info(b);
  const ValueInfo& ti = g.info(table);
  if (ai.dtype != DType::kF32 || ai.shape.size() != 2 || !ai.shape[1].is_constant() || bi.dtype != DType::kF32 ||
      ai.shape != bi.shape)
    return g.fail(invalid_argument("gated_add: {} and {} are not f32 matrices of one shape", to_string(ai.shape),
                                   to_string(bi.shape)));
  const int64_t cols = ai.shape[1].constant();
  if (ti.dtype != DType::kF32 || ti.shape.size() != 2 || !ti.shape[1].is_constant() || column < 0 ||
      column + cols > ti.shape[1].constant() || !(ai.shape[0] == ti.shape[0] * rows_per_item))
    return g.fail(invalid_argument("gated_add: table {} has no columns [{}, {}) for items of {} rows of {}",
                                   to_string(ti.shape), column, column + cols, rows_per_item.to_string(),
                                   to_string(ai.shape)));
  return g.add(kGatedAdd, {a, b, table}, DType::kF32, ai.shape, GatedAddAttrs{column, rows_per_item});
}

namespace {

Status gated_add_reference(ReferenceContext& c) {
  const auto& op = c.attrs<GatedAddAttrs>();
  HostTensor& y = c.out();
  for (int64_t r = 0; r < y.rows(); ++r)
    for (int64_t i = 0; i < y.cols(); ++i)
      y.row(r)[i] =
          c.in(0).row(r)[i] + c.in(2).row(r / op.rows_per_item.eval(c.sizes()))[op.column + i] * c.in(1).row(r)[i];
  return {};
}

std::string describe_gated_add(const std::any& any) {
  return fmt::format("column {}", std::any_cast<const GatedAddAttrs&>(any).column);
}

}  // namespace

const OpDef kGatedAdd = {"gated_add", gated_add_reference, describe_gated_add};

}  // namespace redline
