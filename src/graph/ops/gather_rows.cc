#include "graph/ops/gather_rows.h"

#include "graph/reference.h"

namespace redline {

Value gather_rows(GraphBuilder& g, Value x, Value rows) {
  if (!x.valid() || !rows.valid()) return {};
  const ValueInfo& xi = g.info(x);
  const ValueInfo& ri = g.info(rows);
  if (xi.shape.size() != 2 || ri.dtype != DType::kI32 || ri.shape.size() != 1)
    return g.fail(invalid_argument("gather_rows: x {} must be a matrix and rows {} an i32 vector", to_string(xi.shape),
                                   to_string(ri.shape)));
  return g.add(kGatherRows, {x, rows}, DType::kF32, {ri.shape[0], xi.shape[1]});
}

namespace {

Status gather_rows_reference(ReferenceContext& c) {
  const HostTensor& rows = c.in(1);
  for (int64_t i = 0; i < rows.rows(); ++i) {
    const auto row = static_cast<int64_t>(rows.data[static_cast<size_t>(i)]);
    if (row < 0 || row >= c.in(0).rows()) return invalid_argument("row {} is outside [0, {})", row, c.in(0).rows());
    std::copy_n(c.in(0).row(row), c.in(0).cols(), c.out().row(i));
  }
  return {};
}

}  // namespace

const OpDef kGatherRows = {"gather_rows", gather_rows_reference};

}  // namespace redline
