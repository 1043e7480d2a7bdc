#include "graph/ops/gated_scan.h"

#include <cmath>

#include "graph/reference.h"

namespace redline {

Value gated_scan(GraphBuilder& g, const GatedScanInputs& in, GatedScanAttrs attrs) {
  const Value last = attrs.is_delta ? in.beta : in.skip;
  for (const Value value : {in.x, in.step, in.decay, in.bias, last, in.state})
    if (!value.valid()) return {};
  const GatedScanAttrs& a = attrs;
  constexpr int64_t kMaxDim = 512;
  if (a.num_groups < 1 || a.num_heads < 1 || a.num_heads % a.num_groups != 0)
    return g.fail(invalid_argument("gated_scan: {} heads cannot be divided into {} groups", a.num_heads, a.num_groups));
  if (a.key_dim < 1 || a.key_dim > kMaxDim || a.value_dim < 1 || a.value_dim > kMaxDim)
    return g.fail(unsupported("gated_scan: a state of {} x {} per head; Redline runs up to {} x {}", a.key_dim,
                              a.value_dim, kMaxDim, kMaxDim));
  const Shape& xs = g.info(in.x).shape;
  if (xs.size() != 2 || !(xs[1] == Dim(a.columns())))
    return g.fail(invalid_argument("gated_scan: x is {}, not [tokens, {}]", to_string(xs), a.columns()));
  const Shape rows = {xs[0], Dim(a.num_heads)}, heads = {Dim(a.num_heads)};
  if (g.info(in.step).shape != rows || g.info(in.decay).shape != heads || g.info(in.bias).shape != heads ||
      g.info(last).shape != (a.is_delta ? rows : heads))
    return g.fail(invalid_argument("gated_scan: the shapes of step {}, decay {}, bias {} and {} {} do not fit {} heads",
                                   to_string(g.info(in.step).shape), to_string(g.info(in.decay).shape),
                                   to_string(g.info(in.bias).shape), a.is_delta ? "beta" : "skip",
                                   to_string(g.info(last).shape), a.num_heads));
  const ValueInfo& s = g.info(in.state);
  if (s.kind != ValueKind::kState || s.state.kind != StateKind::kRecurrent || s.state.elements != a.state_elements())
    return g.fail(
        invalid_argument("gated_scan: {} is not a recurrent state of {} elements", s.name, a.state_elements()));
  return g.add(kGatedScan, {in.x, in.step, in.decay, in.bias, last, in.state}, DType::kF32,
               {xs[0], Dim(a.num_heads * a.value_dim)}, attrs);
}

namespace {

double softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }

/// Computes one token of one head and updates the head's state `s`.
void step_reference(const GatedScanAttrs& a, const double* q, const double* k, const double* v, double step,
                    double decay, double last, double* s, double* y) {
  const int64_t n = a.key_dim, p = a.value_dim;
  double query = 1, key = 1;
  if (a.is_delta) {
    double qq = 1e-6, kk = 1e-6;
    for (int64_t i = 0; i < n; ++i) qq += q[i] * q[i], kk += k[i] * k[i];
    query = 1 / std::sqrt(qq * static_cast<double>(n));
    key = 1 / std::sqrt(kk);
  }
  const double kept = std::exp(decay * step);
  for (int64_t i = 0; i < n * p; ++i) s[i] *= kept;
  for (int64_t j = 0; j < p; ++j) {
    double u = step * v[j];
    if (a.is_delta) {
      double known = 0;
      for (int64_t i = 0; i < n; ++i) known += s[i * p + j] * k[i] * key;
      u = (v[j] - known) / (1 + std::exp(-last));
    }
    double sum = a.is_delta ? 0 : last * v[j];
    for (int64_t i = 0; i < n; ++i) {
      s[i * p + j] += k[i] * key * u;
      sum += s[i * p + j] * q[i] * query;
    }
    y[j] = sum;
  }
}

Status gated_scan_reference(ReferenceContext& c) {
  const auto& a = c.attrs<GatedScanAttrs>();
  const HostTensor &x = c.in(0), &steps = c.in(1), &decay = c.in(2), &bias = c.in(3), &last = c.in(4);
  const ReferenceState state = c.state(5);
  const int64_t n = a.key_dim, p = a.value_dim, keys = a.num_groups * n, values = a.num_heads * p;
  const int64_t q_at = a.is_delta ? 0 : values + keys, k_at = a.is_delta ? keys : values,
                v_at = a.is_delta ? 2 * keys : 0;
  for (size_t s = 0; s < c.sequences().size(); ++s) {
    const SequenceRows& rows = c.sequences()[s];
    std::copy_n(state.before(s), state.attrs().elements, state.after(s));
    for (int64_t t = rows.row_begin; t < rows.row_begin + rows.rows; ++t)
      for (int64_t h = 0; h < a.num_heads; ++h) {
        const auto head = static_cast<size_t>(h);
        const double* row = x.row(t);
        const int64_t group = a.group_of(h);
        const double step = std::clamp<double>(softplus(steps.row(t)[h] + bias.data[head]), a.step_min, a.step_max);
        step_reference(a, row + q_at + group * n, row + k_at + group * n, row + v_at + h * p, step, decay.data[head],
                       a.is_delta ? last.row(t)[h] : last.data[head], state.after(s) + h * n * p,
                       c.out().row(t) + h * p);
      }
  }
  return {};
}

std::string describe_gated_scan(const std::any& attrs) {
  const auto& a = std::any_cast<const GatedScanAttrs&>(attrs);
  return fmt::format("{}, {} heads of {} x {} in {} groups", a.is_delta ? "delta" : "selective", a.num_heads, a.key_dim,
                     a.value_dim, a.num_groups);
}

}  // namespace

const OpDef kGatedScan = {.name = "gated_scan", .reference = gated_scan_reference, .describe = describe_gated_scan};

}  // namespace redline
