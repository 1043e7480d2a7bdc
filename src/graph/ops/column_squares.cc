#include "graph/ops/column_squares.h"

#include <map>

#include "graph/ops/expert_linear.h"
#include "graph/reference.h"

namespace redline {

Value column_squares(GraphBuilder& g, Value x) {
  if (!x.valid()) return {};
  const ValueInfo& xi = g.info(x);
  if (xi.dtype != DType::kF32 || xi.shape.size() != 2 || !xi.shape[1].is_constant())
    return g.fail(invalid_argument("column_squares: x must be f32 [rows, cols], not {}", to_string(xi.shape)));
  return g.add(kColumnSquares, {x}, DType::kF32, {Dim(1), xi.shape[1]});
}

Value expert_squares(GraphBuilder& g, Value x, const Routing& routing, bool by_expert) {
  if (!x.valid() || !routing.order.valid()) return {};
  const ValueInfo& xi = g.info(x);
  const Dim rows = g.info(by_expert ? routing.order : routing.weights).shape[0];
  if (xi.dtype != DType::kF32 || xi.shape.size() != 2 || !xi.shape[1].is_constant() || !(xi.shape[0] == rows))
    return g.fail(
        invalid_argument("expert_squares: x must be f32 [{}, cols], not {}", rows.to_string(), to_string(xi.shape)));
  const int64_t experts = g.info(routing.offsets).shape[0].constant() - 1;
  return g.add(kExpertSquares, {x, routing.offsets, routing.order}, DType::kF32,
               {Dim(experts), Dim(xi.shape[1].constant() + 1)},
               ExpertSquaresAttrs{experts, g.info(routing.weights).shape[1].constant(), by_expert});
}

namespace {

Status expert_reference(ReferenceContext& c) {
  const auto& a = c.attrs<ExpertSquaresAttrs>();
  const HostTensor& x = c.in(0);
  for (int64_t e = 0; e < a.num_experts; ++e) {
    const auto begin = static_cast<int64_t>(c.in(1).data[static_cast<size_t>(e)]);
    const auto end = static_cast<int64_t>(c.in(1).data[static_cast<size_t>(e) + 1]);
    double* y = c.out().row(e);
    for (int64_t k = 0; k < x.cols(); ++k) {
      y[k] = 0;
      for (int64_t i = begin; i < end; ++i) {
        const auto pair = static_cast<int64_t>(c.in(2).data[static_cast<size_t>(i)]);
        const double value = x.row(a.by_expert ? i : pair / a.experts_per_token)[k];
        y[k] += value * value;
      }
    }
    y[x.cols()] = static_cast<double>(end - begin);
  }
  return {};
}

Status column_squares_reference(ReferenceContext& c) {
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

const OpDef kColumnSquares = {.name = "column_squares", .reference = column_squares_reference};
const OpDef kExpertSquares = {.name = "expert_squares", .reference = expert_reference};

std::vector<CollectedSquares> collect_column_squares(Graph& graph) {
  std::vector<CollectedSquares> all;
  std::map<ValueId, size_t> collected;
  std::vector<Op> ops;
  ops.reserve(2 * graph.ops.size());
  const ValueId result = graph.outputs[0];
  const auto add_output = [&](Op op, Shape shape) {
    ValueInfo info;
    info.name = fmt::format("squares.{}", all.size());
    info.shape = std::move(shape);
    op.outputs = {static_cast<ValueId>(graph.values.size())};
    graph.values.push_back(std::move(info));
    graph.outputs.push_back(op.outputs[0]);
    ops.push_back(std::move(op));
    all.emplace_back();
  };
  for (Op& op : graph.ops) {
    ops.push_back(std::move(op));
    const Op product = ops.back();
    const ValueId x = product.inputs.empty() ? ValueId() : product.inputs[0];
    if (product.def == &kExpertGatedLinear || product.def == &kExpertLinear) {
      const auto& attrs = std::any_cast<const ExpertLinearAttrs&>(product.attrs);
      const bool by_expert = product.def == &kExpertLinear;
      const int64_t kinds = by_expert ? 1 : 2;
      add_output({&kExpertSquares,
                  product.name + ".squares",
                  {x, product.inputs[1], product.inputs[2]},
                  {},
                  ExpertSquaresAttrs{attrs.num_experts, attrs.experts_per_token, by_expert}},
                 {Dim(attrs.num_experts), graph.value(x).shape[1] + Dim(1)});
      all.back().num_experts = attrs.num_experts;
      const auto first = product.inputs.begin() + 3;
      all.back().matrices.assign(first, first + kinds * attrs.num_experts);
      continue;
    }
    if (product.def->num_matrices == 0 || product.outputs[0] == result) continue;
    if (graph.value(x).dtype != DType::kF32 || graph.value(x).shape.size() != 2) continue;
    const auto [at, is_new] = collected.emplace(x, all.size());
    if (is_new)
      add_output({&kColumnSquares, product.name + ".squares", {x}, {}, {}}, {Dim(1), graph.value(x).shape[1]});
    for (int i = 1; i <= product.def->num_matrices; ++i)
      all[at->second].matrices.push_back(product.inputs[static_cast<size_t>(i)]);
  }
  graph.ops = std::move(ops);
  return all;
}

}  // namespace redline
