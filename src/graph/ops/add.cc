#include "graph/ops/add.h"

#include "graph/reference.h"

namespace redline {

Value add(GraphBuilder& g, Value a, Value b) {
  if (!a.valid() || !b.valid()) return {};
  if (g.info(a).shape != g.info(b).shape || g.info(a).shape.size() != 2)
    return g.fail(
        invalid_argument("add: shapes {} and {} differ", to_string(g.info(a).shape), to_string(g.info(b).shape)));
  return g.add(kAdd, {a, b}, DType::kF32, g.info(a).shape);
}

Value add_row(GraphBuilder& g, Value x, Value row) {
  if (!x.valid() || !row.valid()) return {};
  const ValueInfo& xi = g.info(x);
  const ValueInfo& ri = g.info(row);
  if (xi.dtype != DType::kF32 || xi.shape.size() != 2 || ri.shape.size() != 1 || !(ri.shape[0] == xi.shape[1]))
    return g.fail(invalid_argument("add_row: {} is {}, x is {}", ri.name, to_string(ri.shape), to_string(xi.shape)));
  return g.add(kAddRow, {x, row}, DType::kF32, xi.shape);
}

namespace {

Status add_reference(ReferenceContext& c) {
  for (size_t i = 0; i < c.out().data.size(); ++i) c.out().data[i] = c.in(0).data[i] + c.in(1).data[i];
  return {};
}

Status reference_row(ReferenceContext& c) {
  for (int64_t r = 0; r < c.out().rows(); ++r)
    for (int64_t i = 0; i < c.out().cols(); ++i)
      c.out().row(r)[i] = c.in(0).row(r)[i] + c.in(1).data[static_cast<size_t>(i)];
  return {};
}

}  // namespace

const OpDef kAdd = {"add", add_reference};

const OpDef kAddRow = {"add_row", reference_row};

}  // namespace redline
