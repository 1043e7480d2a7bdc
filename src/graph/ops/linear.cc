#include "graph/ops/linear.h"

#include "graph/ops/gather_columns.h"
#include "graph/reference.h"

namespace redline {

Value linear(GraphBuilder& g, Value x, Value weight, Value bias) {
  if (!x.valid() || !weight.valid()) return {};
  const ValueInfo& xi = g.info(x);
  const ValueInfo& w = g.info(weight);
  if (w.shape.size() != 2)
    return g.fail(invalid_argument("linear: {} must be a matrix, not {}", w.name, to_string(w.shape)));
  if (xi.dtype != DType::kF32 || xi.shape.size() != 2 || !(xi.shape[1] == w.shape[1]))
    return g.fail(invalid_argument("linear: {} is {}, x is {}: the last axes must agree", w.name, to_string(w.shape),
                                   to_string(xi.shape)));
  const Shape y = {xi.shape[0], w.shape[0]};
  std::vector<Value> inputs = {x, weight};
  if (bias.valid()) {
    const ValueInfo& b = g.info(bias);
    if (b.shape.size() != 1 || !(b.shape[0] == w.shape[0]))
      return g.fail(
          invalid_argument("linear: {} is {}, expected [{}]", b.name, to_string(b.shape), w.shape[0].to_string()));
    inputs.push_back(bias);
  }
  // An op more: the references above are gone.
  if (const auto columns = w.weight.columns) inputs[0] = gather_columns(g, x, columns);
  return g.add(kLinear, inputs, DType::kF32, y, LinearAttrs{.has_bias = bias.valid()});
}

void linear_reference(const HostTensor& x, const HostTensor& weight, const HostTensor* bias, HostTensor& y) {
  for (int64_t m = 0; m < x.rows(); ++m)
    for (int64_t n = 0; n < weight.rows(); ++n) {
      double sum = bias != nullptr ? bias->data[static_cast<size_t>(n)] : 0.0;
      for (int64_t k = 0; k < x.cols(); ++k) sum += x.row(m)[k] * weight.row(n)[k];
      y.row(m)[n] = sum;
    }
}

namespace {

Status linear_reference(ReferenceContext& c) {
  const HostTensor& x = c.in(0);
  const HostTensor& weight = c.in(1);
  const auto& attrs = c.attrs<LinearAttrs>();
  const HostTensor* bias = attrs.has_bias ? &c.in(2) : nullptr;
  const HostTensor* residual = attrs.has_residual ? &c.in(c.num_inputs() - 1 - attrs.has_gate) : nullptr;
  const HostTensor* table = attrs.has_gate ? &c.in(c.num_inputs() - 1) : nullptr;
  HostTensor& y = c.out();
  linear_reference(x, weight, bias, y);
  add_adapters_reference(c, attrs.adapters.get(), x, y);
  for (int64_t m = 0; m < x.rows(); ++m)
    for (int64_t n = 0; n < weight.rows(); ++n) {
      if (table) y.row(m)[n] *= table->row(m / attrs.rows_per_item.eval(c.sizes()))[attrs.gate_column + n];
      if (residual) y.row(m)[n] += residual->row(m)[n];
    }
  return {};
}

std::string describe_linear(const std::any& any) {
  const auto& attrs = std::any_cast<const LinearAttrs&>(any);
  return fmt::format("{}{}{}{}", attrs.has_bias ? "+bias" : "", attrs.adapters ? "+adapters" : "",
                     attrs.has_gate ? "*gate" : "", attrs.has_residual ? "+residual" : "");
}

Dim linear_flops(const Graph& graph, const Op& op) {
  const ValueInfo& weight = graph.value(op.inputs[1]);
  return graph.value(op.inputs[0]).shape[0] * weight.shape[0] * weight.shape[1] * Dim(2);
}

}  // namespace

const OpDef kLinear = {.name = "linear",
                       .reference = linear_reference,
                       .describe = describe_linear,
                       .num_matrices = 1,
                       .flops = linear_flops,
                       .takes_columns = true};

}  // namespace redline
