#include "graph/ops/gated_norm.h"

#include <cmath>

#include "graph/reference.h"

namespace redline {

Value gated_norm(GraphBuilder& g, Value x, Value gate, Value weight, GatedNormAttrs attrs) {
  if (!x.valid() || !gate.valid() || !weight.valid()) return {};
  const Shape &xs = g.info(x).shape, &ws = g.info(weight).shape;
  if (xs.size() != 2 || !xs[1].is_constant() || g.info(gate).shape != xs)
    return g.fail(invalid_argument("gated_norm: x {} and gate {} must have one shape", to_string(xs),
                                   to_string(g.info(gate).shape)));
  if (ws.size() != 1 || attrs.group < 1 || ws[0].constant() % attrs.group != 0 ||
      xs[1].constant() % ws[0].constant() != 0)
    return g.fail(invalid_argument("gated_norm: weight {} does not fit x {} in groups of {}", to_string(ws),
                                   to_string(xs), attrs.group));
  return g.add(kGatedNorm, {x, gate, weight}, DType::kF32, xs, attrs);
}

Value sigmoid_mul(GraphBuilder& g, Value x, Value gate) {
  if (!x.valid() || !gate.valid()) return {};
  const Shape& xs = g.info(x).shape;
  if (xs.size() != 2 || !xs[1].is_constant() || g.info(gate).shape != xs)
    return g.fail(invalid_argument("sigmoid_mul: x {} and gate {} must have one shape", to_string(xs),
                                   to_string(g.info(gate).shape)));
  return g.add(kSigmoidMul, {x, gate}, DType::kF32, xs);
}

namespace {

double silu(double x) { return x / (1 + std::exp(-x)); }

Status gated_norm_rows_reference(ReferenceContext& c) {
  const auto& a = c.attrs<GatedNormAttrs>();
  const HostTensor &x = c.in(0), &gate = c.in(1), &weight = c.in(2);
  for (int64_t r = 0; r < x.rows(); ++r)
    for (int64_t begin = 0; begin < x.cols(); begin += a.group) {
      const auto gated = [&](int64_t i) {
        return x.row(r)[begin + i] * (a.gates_first ? silu(gate.row(r)[begin + i]) : 1);
      };
      double sum = 0;
      for (int64_t i = 0; i < a.group; ++i) sum += gated(i) * gated(i);
      const double scale = 1 / std::sqrt(sum / static_cast<double>(a.group) + static_cast<double>(a.eps));
      for (int64_t i = 0; i < a.group; ++i)
        c.out().row(r)[begin + i] = gated(i) * scale * weight.data[static_cast<size_t>((begin + i) % weight.rows())] *
                                    (a.gates_first ? 1 : silu(gate.row(r)[begin + i]));
    }
  return {};
}

Status mul_reference(ReferenceContext& c) {
  const HostTensor &x = c.in(0), &gate = c.in(1);
  for (size_t i = 0; i < x.data.size(); ++i) c.out().data[i] = x.data[i] / (1 + std::exp(-gate.data[i]));
  return {};
}

std::string describe_gated_norm(const std::any& attrs) {
  const auto& a = std::any_cast<const GatedNormAttrs&>(attrs);
  return fmt::format("groups of {}, eps {}{}", a.group, a.eps, a.gates_first ? ", gates first" : "");
}

}  // namespace

const OpDef kGatedNorm = {.name = "gated_norm",
                          .reference = gated_norm_rows_reference,
                          .describe = describe_gated_norm,
                          .prepares_output = true};
const OpDef kSigmoidMul = {.name = "sigmoid_mul", .reference = mul_reference, .prepares_output = true};

}  // namespace redline
