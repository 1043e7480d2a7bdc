#include "graph/ops/causal_conv.h"

#include <cmath>

#include "graph/reference.h"

namespace redline {

Value causal_conv(GraphBuilder& g, Value x, Value weight, Value bias, Value state, CausalConvAttrs attrs) {
  if (!x.valid() || !weight.valid() || !state.valid()) return {};
  const ValueInfo& xi = g.info(x);
  const ValueInfo& s = g.info(state);
  if (attrs.taps < 2 || attrs.taps > 4)
    return g.fail(unsupported("causal_conv: {} taps; Redline runs 2 to 4", attrs.taps));
  if (xi.shape.size() != 2 || !xi.shape[1].is_constant())
    return g.fail(invalid_argument("causal_conv: x must be [tokens, channels], not {}", to_string(xi.shape)));
  const int64_t channels = xi.shape[1].constant();
  if (g.info(weight).shape != Shape{Dim(attrs.taps), Dim(channels)} ||
      (bias.valid() && g.info(bias).shape != Shape{Dim(channels)}))
    return g.fail(invalid_argument("causal_conv: weight {} and bias {} do not fit {} taps of {} channels",
                                   to_string(g.info(weight).shape),
                                   bias.valid() ? to_string(g.info(bias).shape) : "none", attrs.taps, channels));
  if (s.kind != ValueKind::kState || s.state.kind != StateKind::kRecurrent ||
      s.state.elements != (attrs.taps - 1) * channels)
    return g.fail(invalid_argument("causal_conv: {} is not a recurrent state of {} elements", s.name,
                                   (attrs.taps - 1) * channels));
  std::vector<Value> inputs = {x, weight, state};
  if (bias.valid()) inputs.push_back(bias);
  return g.add(kCausalConv, inputs, DType::kF32, xi.shape, attrs);
}

namespace {

Status causal_conv_reference(ReferenceContext& c) {
  const auto& a = c.attrs<CausalConvAttrs>();
  const HostTensor &x = c.in(0), &weight = c.in(1);
  const ReferenceState state = c.state(2);
  const int64_t channels = x.cols();
  for (size_t s = 0; s < c.sequences().size(); ++s) {
    const SequenceRows& rows = c.sequences()[s];
    const auto input = [&](int64_t t, int64_t channel) {  // of a token of the step, or one of the taps - 1 before
      return t >= 0 ? x.row(rows.row_begin + t)[channel] : state.before(s)[(t + a.taps - 1) * channels + channel];
    };
    for (int64_t t = 0; t < rows.rows; ++t)
      for (int64_t ch = 0; ch < channels; ++ch) {
        double sum = c.num_inputs() > 3 ? c.in(3).data[static_cast<size_t>(ch)] : 0;
        for (int64_t i = 0; i < a.taps; ++i) sum += weight.row(i)[ch] * input(t - a.taps + 1 + i, ch);
        c.out().row(rows.row_begin + t)[ch] = a.has_silu ? sum / (1 + std::exp(-sum)) : sum;
      }
    for (int64_t i = 0; i + 1 < a.taps; ++i)
      for (int64_t ch = 0; ch < channels; ++ch)
        state.after(s)[i * channels + ch] = input(rows.rows - a.taps + 1 + i, ch);
  }
  return {};
}

std::string describe_causal_conv(const std::any& attrs) {
  const auto& a = std::any_cast<const CausalConvAttrs&>(attrs);
  return fmt::format("{} taps{}", a.taps, a.has_silu ? ", silu" : "");
}

}  // namespace

const OpDef kCausalConv = {.name = "causal_conv", .reference = causal_conv_reference, .describe = describe_causal_conv};

}  // namespace redline
