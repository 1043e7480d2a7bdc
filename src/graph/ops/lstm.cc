#include "graph/ops/lstm.h"

#include <cmath>

#include "graph/reference.h"

namespace redline {

int64_t LstmAttrs::state_offset(int64_t layer) const {
  int64_t tokens = 0;
  for (int64_t l = 0; l < layer; ++l) tokens += dilation[static_cast<size_t>(l)];
  return 2 * tokens * hidden_size;
}

Value lstm(GraphBuilder& g, Value x, std::span<const LstmLayer> layers, Value state, LstmAttrs attrs) {
  if (!x.valid() || !state.valid()) return {};
  const int64_t hidden = attrs.hidden_size;
  if (hidden < 1 || layers.empty() || std::ssize(layers) != attrs.num_layers())
    return g.fail(invalid_argument("lstm: {} layers of {} elements, dilations for {}", layers.size(), hidden,
                                   attrs.num_layers()));
  for (const int64_t d : attrs.dilation)
    if (d < 1) return g.fail(invalid_argument("lstm: a dilation of {}", d));
  const ValueInfo& xi = g.info(x);
  if (xi.dtype != DType::kF32 || xi.shape.size() != 2 || !xi.shape[1].is_constant())
    return g.fail(invalid_argument("lstm: x must be [tokens, columns] of f32, not {}", to_string(xi.shape)));
  std::vector<Value> inputs = {x, state};
  const Dim gates = 4 * hidden;
  for (size_t l = 0; l < layers.size(); ++l) {
    const auto add = [&](const char* name, Value value, const Shape& shape) {
      if (!value.valid()) return g.fail(invalid_argument("lstm: layer {} has no {}", l, name)).valid();
      if (g.info(value).shape != shape)
        return g
            .fail(invalid_argument("lstm: {} of layer {} is {}, expected {}", name, l, to_string(g.info(value).shape),
                                   to_string(shape)))
            .valid();
      inputs.push_back(value);
      return true;
    };
    const LstmLayer& layer = layers[l];
    if (!add("weight_ih", layer.weight_ih, {gates, l == 0 ? xi.shape[1] : Dim(hidden)})) return {};
    if (!add("weight_hh", layer.weight_hh, {gates, Dim(hidden)})) return {};
    if (!attrs.has_bias) continue;
    if (!add("bias_ih", layer.bias_ih, {gates}) || !add("bias_hh", layer.bias_hh, {gates})) return {};
  }
  const ValueInfo& s = g.info(state);
  if (s.kind != ValueKind::kState || s.state.kind != StateKind::kRecurrent ||
      s.state.elements != attrs.state_elements())
    return g.fail(invalid_argument("lstm: {} is not a recurrent state of {} elements", s.name, attrs.state_elements()));
  const Shape shape = {xi.shape[0], Dim(hidden)};
  return g.add(kLstm, inputs, DType::kF32, shape, std::move(attrs));
}

namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct LayerReference {
  const HostTensor &weight_ih, &weight_hh;
  const HostTensor *bias_ih, *bias_hh;  // or nullptr

  /// Computes one token: replaces h and c.
  void step(const double* x, int64_t hidden, double* h, double* c) const {
    std::vector<double> gates(static_cast<size_t>(4 * hidden));
    for (int64_t i = 0; i < 4 * hidden; ++i) {
      const auto at = static_cast<size_t>(i);
      double sum = bias_ih ? bias_ih->data[at] + bias_hh->data[at] : 0;
      for (int64_t k = 0; k < weight_ih.cols(); ++k) sum += weight_ih.row(i)[k] * x[k];
      for (int64_t k = 0; k < hidden; ++k) sum += weight_hh.row(i)[k] * h[k];
      gates[at] = sum;
    }
    for (int64_t j = 0; j < hidden; ++j) {
      const double* gate = gates.data() + j;
      c[j] = sigmoid(gate[hidden]) * c[j] + sigmoid(gate[0]) * std::tanh(gate[2 * hidden]);
      h[j] = sigmoid(gate[3 * hidden]) * std::tanh(c[j]);
    }
  }
};

Status lstm_reference(ReferenceContext& c) {
  const auto& a = c.attrs<LstmAttrs>();
  const ReferenceState state = c.state(1);
  std::vector<LayerReference> layers;
  layers.reserve(a.dilation.size());
  for (size_t l = 0, at = 2; l < a.dilation.size(); ++l, at += a.has_bias ? 4 : 2)
    layers.push_back(
        {c.in(at), c.in(at + 1), a.has_bias ? &c.in(at + 2) : nullptr, a.has_bias ? &c.in(at + 3) : nullptr});
  for (size_t s = 0; s < c.sequences().size(); ++s) {
    const SequenceRows& rows = c.sequences()[s];
    std::copy_n(state.before(s), state.attrs().elements, state.after(s));
    for (int64_t t = 0; t < rows.rows; ++t) {
      const double* x = c.in(0).row(rows.row_begin + t);
      for (int64_t l = 0; l < a.num_layers(); ++l) {
        const int64_t dilation = a.dilation[static_cast<size_t>(l)];
        double* h = state.after(s) + a.state_offset(l) + (rows.first_position + t) % dilation * a.hidden_size;
        layers[static_cast<size_t>(l)].step(x, a.hidden_size, h, h + dilation * a.hidden_size);
        x = h;
      }
      std::copy_n(x, a.hidden_size, c.out().row(rows.row_begin + t));
    }
  }
  return {};
}

std::string describe_lstm(const std::any& attrs) {
  const auto& a = std::any_cast<const LstmAttrs&>(attrs);
  return fmt::format("{} layers of {}, {} tokens of state", a.num_layers(), a.hidden_size,
                     a.state_elements() / (2 * a.hidden_size));
}

Dim lstm_flops(const Graph& graph, const Op& op) {
  const auto& a = std::any_cast<const LstmAttrs&>(op.attrs);
  Dim elements = 0;
  for (size_t l = 0, at = 2; l < a.dilation.size(); ++l, at += a.has_bias ? 4 : 2)
    for (const size_t i : {at, at + 1}) {
      const Shape& weight = graph.value(op.inputs[i]).shape;
      elements = elements + weight[0] * weight[1];
    }
  return graph.value(op.inputs[0]).shape[0] * elements * Dim(2);
}

}  // namespace

const OpDef kLstm = {.name = "lstm", .reference = lstm_reference, .describe = describe_lstm, .flops = lstm_flops};

}  // namespace redline
