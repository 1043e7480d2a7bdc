#include "graph/ops/column_squares.h"

#include <map>

#include "graph/reference.h"

namespace redline {

Value column_squares(GraphBuilder& g, Value x) {
  if (!x.valid()) return {};
  const ValueInfo& xi = g.info(x);
  if (xi.dtype != DType::kF32 || xi.shape.size() != 2 || !xi.shape[1].is_constant())
    return g.fail(invalid_argument("column_squares: x must be f32 [rows, cols], not {}", to_string(xi.shape)));
  return g.add(kColumnSquares, {x}, DType::kF32, {Dim(1), xi.shape[1]});
}

namespace {

Status reference(ReferenceContext& c) {
  const HostTensor& x = c.in(0);
  HostTensor& y = c.out();
  for (int64_t k = 0; k < x.cols(); ++k) {
    double sum = 0;
    for (int64_t m = 0; m < x.rows(); ++m) sum += x.row(m)[k] * x.row(m)[k];
    y.row(0)[k] = sum;
  }
  return {};
}

}  // namespace

const OpDef kColumnSquares = {.name = "column_squares", .reference = reference};

std::vector<std::vector<ValueId>> collect_column_squares(Graph& graph) {
  std::vector<std::vector<ValueId>> matrices;
  std::map<ValueId, size_t> collected;
  std::vector<Op> ops;
  ops.reserve(2 * graph.ops.size());
  const ValueId result = graph.outputs[0];
  for (Op& op : graph.ops) {
    ops.push_back(std::move(op));
    const Op product = ops.back();
    if (product.def->num_matrices == 0 || product.outputs[0] == result) continue;
    const ValueId x = product.inputs[0];
    if (graph.value(x).dtype != DType::kF32 || graph.value(x).shape.size() != 2) continue;
    const auto [at, is_new] = collected.emplace(x, matrices.size());
    if (is_new) {
      ValueInfo info;
      info.name = fmt::format("squares.{}", matrices.size());
      info.shape = {Dim(1), graph.value(x).shape[1]};
      const auto y = static_cast<ValueId>(graph.values.size());
      graph.values.push_back(std::move(info));
      graph.outputs.push_back(y);
      matrices.emplace_back();
      ops.push_back({&kColumnSquares, product.name + ".squares", {x}, {y}, {}});
    }
    for (int i = 1; i <= product.def->num_matrices; ++i)
      matrices[at->second].push_back(product.inputs[static_cast<size_t>(i)]);
  }
  graph.ops = std::move(ops);
  return matrices;
}

}  // namespace redline
