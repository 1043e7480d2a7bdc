#include "graph/ops/place_rows.h"

#include "graph/reference.h"

namespace redline {
namespace {

Value place(GraphBuilder& g, const char* name, Value x, Value rows, Value at, PlaceRowsAttrs attrs) {
  if (!x.valid() || !rows.valid() || !at.valid()) return {};
  const ValueInfo &xi = g.info(x), &ri = g.info(rows), &ai = g.info(at);
  if (xi.shape.size() != 2 || ri.shape.size() != 2 || !(ri.shape[1] == xi.shape[1]))
    return g.fail(invalid_argument("{}: rows {} must have as many columns as x {}", name, to_string(ri.shape),
                                   to_string(xi.shape)));
  if (ai.dtype != DType::kI32 || ai.shape.size() != 1 || !(ai.shape[0] == ri.shape[0]))
    return g.fail(invalid_argument("{}: at {} must be an i32 vector with an element for each of the rows {}", name,
                                   to_string(ai.shape), to_string(ri.shape)));
  return g.add(kPlaceRows, {x, rows, at}, DType::kF32, xi.shape, attrs);
}

Status place_rows_reference(ReferenceContext& c) {
  const HostTensor &x = c.in(0), &rows = c.in(1), &at = c.in(2);
  const bool adds = c.attrs<PlaceRowsAttrs>().adds;
  c.out().data = x.data;
  int64_t last = -1;
  for (int64_t i = 0; i < rows.rows(); ++i) {
    const auto row = static_cast<int64_t>(at.data[static_cast<size_t>(i)]);
    if (row <= last || row >= x.rows())
      return invalid_argument("row {} is outside [0, {}) or not after row {}", row, x.rows(), last);
    last = row;
    for (int64_t n = 0; n < x.cols(); ++n) c.out().row(row)[n] = rows.row(i)[n] + (adds ? x.row(row)[n] : 0);
  }
  return {};
}

std::string describe_place_rows(const std::any& any) {
  return std::any_cast<const PlaceRowsAttrs&>(any).adds ? "adds" : "";
}

}  // namespace

Value place_rows(GraphBuilder& g, Value x, Value rows, Value at) { return place(g, "place_rows", x, rows, at, {}); }

Value add_rows(GraphBuilder& g, Value x, Value rows, Value at) {
  return place(g, "add_rows", x, rows, at, {.adds = true});
}

const OpDef kPlaceRows = {.name = "place_rows", .reference = place_rows_reference, .describe = describe_place_rows};

}  // namespace redline
