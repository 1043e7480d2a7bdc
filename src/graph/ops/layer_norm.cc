#include "graph/ops/layer_norm.h"

#include <cmath>

#include "graph/reference.h"

namespace redline {
namespace {

/// Checks x for layer_norm and modulated_norm.
Status check_x(const GraphBuilder& g, const OpDef& op, Value x) {
  const ValueInfo& xi = g.info(x);
  if (xi.dtype != DType::kF32 || xi.shape.size() != 2 || !xi.shape[1].is_constant())
    return invalid_argument("{}: x must be f32 [rows, cols], not {}", op.name, to_string(xi.shape));
  return {};
}

}  // namespace

Value layer_norm(GraphBuilder& g, Value x, Value weight, Value bias, LayerNormAttrs attrs) {
  if (!x.valid()) return {};
  if (Status status = check_x(g, kLayerNorm, x); !status.ok()) return g.fail(std::move(status));
  const ValueInfo& xi = g.info(x);
  if (attrs.group < 0 || (attrs.group > 0 && xi.shape[1].constant() % attrs.group != 0))
    return g.fail(invalid_argument("layer_norm: groups of {} in rows of {}", attrs.group, xi.shape[1].constant()));
  std::vector<Value> inputs = {x};
  for (Value v : {weight, bias}) {
    if (!v.valid()) continue;
    const ValueInfo& w = g.info(v);
    if (w.shape.size() != 1 || !(w.shape[0] == xi.shape[1]))
      return g.fail(
          invalid_argument("layer_norm: {} is {}, expected [{}]", w.name, to_string(w.shape), xi.shape[1].to_string()));
    inputs.push_back(v);
  }
  LayerNormOpAttrs op;
  op.norm = attrs;
  op.has_weight = weight.valid();
  op.has_bias = bias.valid();
  return g.add(kLayerNorm, inputs, DType::kF32, xi.shape, op);
}

Value modulated_norm(GraphBuilder& g, Value x, Modulation m, LayerNormAttrs attrs) {
  if (!x.valid() || !m.table.valid()) return {};
  if (Status status = check_x(g, kModulatedNorm, x); !status.ok()) return g.fail(std::move(status));
  const ValueInfo& xi = g.info(x);
  const ValueInfo& table = g.info(m.table);
  if (table.dtype != DType::kF32 || table.shape.size() != 2 || !table.shape[1].is_constant())
    return g.fail(
        invalid_argument("modulated_norm: the table must be f32 [batch, columns], not {}", to_string(table.shape)));
  const int64_t cols = xi.shape[1].constant(), columns = table.shape[1].constant();
  if (m.scale < 0 || m.scale + cols > columns || m.shift < -1 || m.shift + cols > columns)
    return g.fail(invalid_argument("modulated_norm: {} columns from {} (scale) and {} (shift) of a table of {}", cols,
                                   m.scale, m.shift, columns));
  if (!(xi.shape[0] == table.shape[0] * m.rows_per_item))
    return g.fail(invalid_argument("modulated_norm: x has {} rows, the table {} of {} rows each",
                                   xi.shape[0].to_string(), table.shape[0].to_string(), m.rows_per_item.to_string()));
  LayerNormOpAttrs op;
  op.norm = attrs;
  op.modulated = true;
  op.shift = m.shift;
  op.scale = m.scale;
  op.rows_per_item = m.rows_per_item;
  return g.add(kModulatedNorm, {x, m.table}, DType::kF32, xi.shape, op);
}

namespace {

Status layer_norm_reference(ReferenceContext& c) {
  const HostTensor& x = c.in(0);
  const auto& op = c.attrs<LayerNormOpAttrs>();
  const int64_t group = op.norm.group > 0 ? op.norm.group : x.cols(), groups = x.cols() / group;
  for (int64_t part = 0; part < x.rows() * groups; ++part) {
    const int64_t r = part / groups, begin = part % groups * group, end = begin + group;
    double mean = 0, squares = 0;
    for (int64_t i = begin; i < end && op.norm.centred; ++i) mean += x.row(r)[i] / static_cast<double>(group);
    for (int64_t i = begin; i < end; ++i) squares += (x.row(r)[i] - mean) * (x.row(r)[i] - mean);
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(group) + double{op.norm.eps});
    const double* item = op.modulated ? c.in(1).row(r / op.rows_per_item.eval(c.sizes())) : nullptr;
    for (int64_t i = begin; i < end; ++i) {
      double y = (x.row(r)[i] - mean) * inverse;
      if (op.has_weight) y *= c.in(1).data[static_cast<size_t>(i)];
      if (op.has_bias) y += c.in(op.has_weight ? 2 : 1).data[static_cast<size_t>(i)];
      if (op.modulated) y *= 1 + item[op.scale + i];
      if (op.modulated && op.shift >= 0) y += item[op.shift + i];
      c.out().row(r)[i] = y;
    }
  }
  return {};
}

std::string describe_layer_norm(const std::any& any) {
  const auto& op = std::any_cast<const LayerNormOpAttrs&>(any);
  std::string text = fmt::format("eps {}{}", op.norm.eps, op.norm.centred ? "" : " uncentred");
  if (op.norm.group > 0) text += fmt::format(" groups of {}", op.norm.group);
  if (op.modulated) text += fmt::format(" scale {} shift {}", op.scale, op.shift);
  return text;
}

}  // namespace

const OpDef kLayerNorm = {
    .name = "layer_norm", .reference = layer_norm_reference, .describe = describe_layer_norm, .prepares_output = true};

const OpDef kModulatedNorm = {.name = "modulated_norm",
                              .reference = layer_norm_reference,
                              .describe = describe_layer_norm,
                              .prepares_output = true};

}  // namespace redline
