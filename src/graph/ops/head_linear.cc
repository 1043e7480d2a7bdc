#include "graph/ops/head_linear.h"

#include "graph/reference.h"

namespace redline {

Value head_linear(GraphBuilder& g, Value x, std::span<const Value> weights) {
  if (!x.valid() || weights.empty() || !weights.front().valid()) return {};
  const auto heads = static_cast<int64_t>(weights.size());
  const ValueInfo &xi = g.info(x), &first = g.info(weights.front());
  if (xi.dtype != DType::kF32 || xi.shape.size() != 2 || xi.shape[1].constant() % heads != 0)
    return g.fail(invalid_argument("head_linear: x is {}, for {} heads", to_string(xi.shape), heads));
  std::vector<Value> inputs = {x};
  for (const Value weight : weights) {
    if (!weight.valid()) return {};
    const ValueInfo& w = g.info(weight);
    if (w.kind != ValueKind::kWeight || w.shape.size() != 2 || w.shape != first.shape || w.dtype != first.dtype ||
        w.shape[1].constant() > xi.shape[1].constant() / heads)
      return g.fail(invalid_argument("head_linear: {} is {} {}, {} is {} {}, x has {} columns for each head", w.name,
                                     dtype_info(w.dtype).name, to_string(w.shape), first.name,
                                     dtype_info(first.dtype).name, to_string(first.shape),
                                     xi.shape[1].constant() / heads));
    inputs.push_back(weight);
  }
  return g.add(kHeadLinear, inputs, DType::kF32, {xi.shape[0], first.shape[0] * Dim(heads)}, HeadAttrs{heads});
}

Value concat_heads(GraphBuilder& g, Value a, Value b, int64_t heads) {
  if (!a.valid() || !b.valid()) return {};
  const Shape &as = g.info(a).shape, &bs = g.info(b).shape;
  if (as.size() != 2 || bs.size() != 2 || !(as[0] == bs[0]) || heads < 1 || as[1].constant() % heads != 0 ||
      bs[1].constant() % heads != 0)
    return g.fail(invalid_argument("concat_heads: {} and {} for {} heads", to_string(as), to_string(bs), heads));
  return g.add(kConcatHeads, {a, b}, DType::kF32, {as[0], as[1] + bs[1]}, HeadAttrs{heads});
}

namespace {

Status head_linear_reference(ReferenceContext& c) {
  const HostTensor& x = c.in(0);
  const int64_t heads = c.attrs<HeadAttrs>().num_heads, x_size = x.cols() / heads;
  for (int64_t t = 0; t < x.rows(); ++t)
    for (int64_t h = 0; h < heads; ++h) {
      const HostTensor& weight = c.in(1 + static_cast<size_t>(h));
      for (int64_t n = 0; n < weight.rows(); ++n) {
        double sum = 0;
        for (int64_t k = 0; k < weight.cols(); ++k) sum += weight.row(n)[k] * x.row(t)[h * x_size + k];
        c.out().row(t)[h * weight.rows() + n] = sum;
      }
    }
  return {};
}

Status concat_reference(ReferenceContext& c) {
  const int64_t heads = c.attrs<HeadAttrs>().num_heads, a = c.in(0).cols() / heads, b = c.in(1).cols() / heads;
  for (int64_t t = 0; t < c.out().rows(); ++t)
    for (int64_t h = 0; h < heads; ++h) {
      double* y = c.out().row(t) + h * (a + b);
      std::copy_n(c.in(0).row(t) + h * a, a, y);
      std::copy_n(c.in(1).row(t) + h * b, b, y + a);
    }
  return {};
}

std::string describe_head_linear(const std::any& any) {
  return fmt::format("{} heads", std::any_cast<const HeadAttrs&>(any).num_heads);
}

Dim head_linear_flops(const Graph& graph, const Op& op) {
  const ValueInfo& weight = graph.value(op.inputs[1]);
  return graph.value(op.outputs[0]).shape[0] * graph.value(op.outputs[0]).shape[1] * weight.shape[1] * Dim(2);
}

}  // namespace

const OpDef kHeadLinear = {.name = "head_linear",
                           .reference = head_linear_reference,
                           .describe = describe_head_linear,
                           .flops = head_linear_flops};
const OpDef kConcatHeads = {.name = "concat_heads", .reference = concat_reference, .describe = describe_head_linear};

}  // namespace redline
