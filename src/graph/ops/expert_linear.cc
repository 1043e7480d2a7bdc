#include "graph/ops/expert_linear.h"

#include <algorithm>
#include <cmath>

#include "graph/ops/activation.h"
#include "graph/reference.h"

namespace redline {
namespace {

/// Checks the matrices of one kind and appends them to `inputs`. Returns the number of their rows; nullopt after an
/// error.
std::optional<int64_t> add_matrices(GraphBuilder& g, const char* op, const ExpertMatrices& m, int64_t in_features,
                                    std::vector<Value>& inputs) {
  const auto refuse = [&](Status status) {
    g.fail(std::move(status));
    return std::optional<int64_t>();
  };
  const Value first = m.weights.front();
  for (const Value weight : m.weights) {
    if (!weight.valid()) return {};
    const ValueInfo& w = g.info(weight);
    if (w.kind != ValueKind::kWeight || w.shape.size() != 2 || !(w.shape[1] == Dim(in_features)))
      return refuse(invalid_argument("{}: {} is {}, x has {} columns", op, w.name, to_string(w.shape), in_features));
    if (w.shape != g.info(first).shape || w.dtype != g.info(first).dtype)
      return refuse(unsupported("{}: {} is {} {}, {} is {} {}: experts must have one shape and type", op, w.name,
                                dtype_info(w.dtype).name, to_string(w.shape), g.info(first).name,
                                dtype_info(g.info(first).dtype).name, to_string(g.info(first).shape)));
    inputs.push_back(weight);
  }
  const int64_t features = g.info(first).shape[0].constant();
  if (m.bias.valid()) {
    const ValueInfo& b = g.info(m.bias);
    if (b.kind != ValueKind::kWeight || b.shape != Shape{Dim(std::ssize(m.weights)), Dim(features)} ||
        dtype_info(b.dtype).is_block)
      return refuse(invalid_argument("{}: {} is {}, expected [{}, {}]", op, b.name, to_string(b.shape),
                                     m.weights.size(), features));
  }
  return features;
}

/// Checks x and the routing. Returns false after an error.
bool check_rows(GraphBuilder& g, const char* op, Value x, const Routing& r, size_t experts) {
  if (!x.valid() || !r.order.valid() || experts == 0) return false;
  if (g.info(x).dtype == DType::kF32 && g.info(x).shape.size() == 2 &&
      g.info(r.offsets).shape[0] == Dim(static_cast<int64_t>(experts) + 1))
    return true;
  g.fail(invalid_argument(
      "{}: x is {}, expected an f32 matrix, and {} experts have {} offsets, expected one more than experts", op,
      to_string(g.info(x).shape), experts, to_string(g.info(r.offsets).shape)));
  return false;
}

Value add_op(GraphBuilder& g, const OpDef& def, Value x, const Routing& r, std::span<const ExpertMatrices> kinds,
             ExpertLinearAttrs attrs) {
  const std::string op(def.name);
  const size_t experts = kinds.front().weights.size();
  if (!check_rows(g, op.c_str(), x, r, experts)) return {};
  std::vector<Value> inputs = {x, r.offsets, r.order};
  int64_t features = -1;
  for (const ExpertMatrices& m : kinds) {
    const auto own = add_matrices(g, op.c_str(), m, g.info(x).shape[1].constant(), inputs);
    if (!own) return {};
    if ((features >= 0 && *own != features) || m.weights.size() != experts ||
        m.bias.valid() != kinds.front().bias.valid())
      return g.fail(invalid_argument("{}: the matrices of gate and up differ in shape, number or bias", op));
    features = *own;
  }
  for (const ExpertMatrices& m : kinds)
    if (m.bias.valid()) inputs.push_back(m.bias);
  attrs.num_experts = static_cast<int64_t>(experts);
  attrs.experts_per_token = g.info(r.weights).shape[1].constant();
  attrs.has_bias = kinds.front().bias.valid();
  return g.add(def, inputs, DType::kF32, {g.info(r.order).shape[0], Dim(features)}, attrs);
}

}  // namespace

Value expert_gated_linear(GraphBuilder& g, Value x, const Routing& routing, const ExpertMatrices& gate,
                          const ExpertMatrices& up, ExpertLinearAttrs attrs) {
  const ExpertMatrices kinds[] = {gate, up};
  return add_op(g, kExpertGatedLinear, x, routing, kinds, attrs);
}

Value expert_linear(GraphBuilder& g, Value x, const Routing& routing, const ExpertMatrices& matrices) {
  if (x.valid() && routing.order.valid() && !(g.info(x).shape[0] == g.info(routing.order).shape[0]))
    return g.fail(invalid_argument("expert_linear: x is {}, expected {} rows, one for each pair of token and expert",
                                   to_string(g.info(x).shape), g.info(routing.order).shape[0].to_string()));
  return add_op(g, kExpertLinear, x, routing, {&matrices, 1}, {});
}

Value expert_sum(GraphBuilder& g, Value x, Value weights, Value shared, Value gate) {
  if (!x.valid() || !weights.valid()) return {};
  const Shape &xs = g.info(x).shape, &ws = g.info(weights).shape;
  if (xs.size() != 2 || ws.size() != 2 || !(xs[0] == ws[0] * ws[1]))
    return g.fail(invalid_argument("expert_sum: x is {}, expected a row for each element of the weights {}",
                                   to_string(xs), to_string(ws)));
  const Shape out = {ws[0], xs[1]};
  if (gate.valid() && !shared.valid()) return g.fail(invalid_argument("expert_sum: a gate needs a shared expert"));
  if (shared.valid() && g.info(shared).shape != out)
    return g.fail(invalid_argument("expert_sum: the shared expert is {}, expected {}", to_string(g.info(shared).shape),
                                   to_string(out)));
  if (gate.valid() && g.info(gate).shape != Shape{ws[0], Dim(1)})
    return g.fail(invalid_argument("expert_sum: the gate is {}, expected [{}, 1]", to_string(g.info(gate).shape),
                                   ws[0].to_string()));
  std::vector<Value> inputs = {x, weights};
  for (const Value more : {shared, gate})
    if (more.valid()) inputs.push_back(more);
  return g.add(kExpertSum, inputs, DType::kF32, out);
}

namespace {

/// Computes y = weight x + bias.
void multiply(const HostTensor& weight, const double* bias, const double* x, double* y) {
  for (int64_t n = 0; n < weight.rows(); ++n) {
    double sum = bias ? bias[n] : 0;
    for (int64_t k = 0; k < weight.cols(); ++k) sum += weight.row(n)[k] * x[k];
    y[n] = sum;
  }
}

template <int kKinds>
Status expert_linear_reference(ReferenceContext& c) {
  const auto& a = c.attrs<ExpertLinearAttrs>();
  const auto experts = static_cast<size_t>(a.num_experts);
  constexpr size_t kFirst = 3;  // matrix
  HostTensor& y = c.out();
  std::vector<double> up(static_cast<size_t>(y.cols()));
  const auto product = [&](size_t kind, size_t e, const double* x, double* to) {
    const HostTensor* bias = a.has_bias ? &c.in(kFirst + kKinds * experts + kind) : nullptr;
    multiply(c.in(kFirst + kind * experts + e), bias ? bias->row(static_cast<int64_t>(e)) : nullptr, x, to);
  };
  for (size_t e = 0; e < experts; ++e)
    for (auto i = static_cast<int64_t>(c.in(1).data[e]); i < static_cast<int64_t>(c.in(1).data[e + 1]); ++i) {
      const auto pair = static_cast<int64_t>(c.in(2).data[static_cast<size_t>(i)]);
      if (kKinds == 1) {
        product(0, e, c.in(0).row(i), y.row(pair));
        continue;
      }
      const double* x = c.in(0).row(pair / a.experts_per_token);
      product(0, e, x, y.row(i));
      product(kKinds - 1, e, x, up.data());
      for (int64_t n = 0; n < y.cols(); ++n) {
        double gate = y.row(i)[n], other = up[static_cast<size_t>(n)];
        if (a.limit > 0) {
          const double limit = a.limit;
          gate = std::min(gate, limit);
          other = std::clamp(other, -limit, limit) + 1;
        }
        y.row(i)[n] = activation_of(a.activation, gate) * other;
      }
    }
  return {};
}

Status sum_reference(ReferenceContext& c) {
  const HostTensor &x = c.in(0), &weights = c.in(1);
  for (int64_t t = 0; t < c.out().rows(); ++t)
    for (int64_t n = 0; n < c.out().cols(); ++n) {
      double sum = 0;
      for (int64_t i = 0; i < weights.cols(); ++i) sum += weights.row(t)[i] * x.row(t * weights.cols() + i)[n];
      if (c.num_inputs() > 2)
        sum += (c.num_inputs() > 3 ? 1 / (1 + std::exp(-c.in(3).row(t)[0])) : 1) * c.in(2).row(t)[n];
      c.out().row(t)[n] = sum;
    }
  return {};
}

std::string describe_expert_linear(const std::any& any) {
  const auto& a = std::any_cast<const ExpertLinearAttrs&>(any);
  return fmt::format("{} of {}{}{}", a.experts_per_token, a.num_experts, a.has_bias ? ", +bias" : "",
                     a.limit > 0 ? fmt::format(", limit {}", a.limit) : "");
}

template <int kKinds>
Dim expert_linear_flops(const Graph& graph, const Op& op) {
  const ValueInfo& weight = graph.value(op.inputs[3]);
  return graph.value(op.outputs[0]).shape[0] * weight.shape[0] * weight.shape[1] * Dim(2 * kKinds);
}

}  // namespace

const OpDef kExpertGatedLinear = {.name = "expert_gated_linear",
                                  .reference = expert_linear_reference<2>,
                                  .describe = describe_expert_linear,
                                  .flops = expert_linear_flops<2>};
const OpDef kExpertLinear = {.name = "expert_linear",
                             .reference = expert_linear_reference<1>,
                             .describe = describe_expert_linear,
                             .flops = expert_linear_flops<1>};
const OpDef kExpertSum = {.name = "expert_sum", .reference = sum_reference};

}  // namespace redline
