#include "graph/ops/attention.h"

#include <algorithm>
#include <cmath>

#include "graph/ops/kv_append.h"
#include "graph/reference.h"

namespace redline {

Value attention(GraphBuilder& g, Value q, Value k, Value v, Value cache, AttentionAttrs a, Value sinks) {
  if (!q.valid() || !k.valid() || !v.valid() || !cache.valid()) return {};
  const StateAttrs kv = g.info(cache).state;
  if (g.info(cache).kind != ValueKind::kState || kv.kind != StateKind::kKeyValue)
    return g.fail(invalid_argument("attention: {} is not a key-value state", g.info(cache).name));
  if (a.num_heads <= 0 || kv.num_heads <= 0 || a.num_heads % kv.num_heads != 0)
    return g.fail(
        invalid_argument("attention: {} heads do not divide among {} key-value heads", a.num_heads, kv.num_heads));
  if (kv.window > 0 && (a.window <= 0 || a.window > kv.window))
    return g.fail(invalid_argument("attention: a window of {} over a cache that keeps {}", a.window, kv.window));
  const Dim tokens = g.info(q).shape[0];
  const Shape q_shape = {tokens, a.num_heads * kv.head_dim}, kv_shape = {tokens, kv.num_heads * kv.head_dim};
  if (g.info(q).shape != q_shape || g.info(k).shape != kv_shape || g.info(v).shape != kv_shape)
    return g.fail(invalid_argument("attention: q {}, k {}, v {} are not {} heads over {} of {}",
                                   to_string(g.info(q).shape), to_string(g.info(k).shape), to_string(g.info(v).shape),
                                   a.num_heads, kv.num_heads, kv.head_dim));
  if (!(a.soft_cap >= 0 && a.soft_cap < INFINITY))
    return g.fail(invalid_argument("attention: a soft cap of {}", a.soft_cap));
  if (sinks.valid() && (g.info(sinks).kind != ValueKind::kWeight || g.info(sinks).shape != Shape{Dim(a.num_heads)}))
    return g.fail(invalid_argument("attention: sinks are {}, expected a weight [{}]", to_string(g.info(sinks).shape),
                                   a.num_heads));
  const Value appended = kv_append(g, k, v, cache);
  std::vector<Value> inputs = {q, appended, cache};
  if (sinks.valid()) inputs.push_back(sinks);
  return g.add(kAttention, inputs, DType::kF32, q_shape, a);
}

namespace {

double capped(double score, double cap) { return cap > 0 ? cap * std::tanh(score / cap) : score; }

// The query of one head over its visible positions. `sink`: its logit, or -inf.
void attend_reference(const ReferenceState& cache, size_t sequence, int64_t head, int64_t position,
                      const AttentionAttrs& a, double sink, const double* q, double* y) {
  const int64_t first = a.window > 0 ? std::max<int64_t>(0, position - a.window + 1) : 0, d = cache.attrs().head_dim;
  std::vector<double> weight(static_cast<size_t>(position - first + 1));
  double most = sink;
  for (int64_t p = first; p <= position; ++p) {
    const double* key = cache.key(sequence, p, head);
    double dot = 0;
    for (int64_t i = 0; i < d; ++i) dot += q[i] * key[i];
    const double score = capped(dot * static_cast<double>(a.scale), static_cast<double>(a.soft_cap));
    weight[static_cast<size_t>(p - first)] = score;
    most = std::max(most, score);
  }
  double sum = std::exp(sink - most);
  for (double& w : weight) sum += w = std::exp(w - most);
  for (int64_t p = first; p <= position; ++p) {
    const double* value = cache.value(sequence, p, head);
    for (int64_t i = 0; i < d; ++i) y[i] += weight[static_cast<size_t>(p - first)] / sum * value[i];
  }
}

Status attention_reference(ReferenceContext& c) {
  const auto& a = c.attrs<AttentionAttrs>();
  const HostTensor& q = c.in(0);
  const ReferenceState cache = c.state(2);
  const int64_t group = a.num_heads / cache.attrs().num_heads, d = cache.attrs().head_dim;
  for (size_t s = 0; s < c.sequences().size(); ++s) {
    const SequenceRows& rows = c.sequences()[s];
    for (int64_t i = 0; i < rows.rows; ++i)
      for (int64_t h = 0; h < a.num_heads; ++h)
        attend_reference(cache, s, h / group, rows.first_position + i, a,
                         c.num_inputs() > 3 ? c.in(3).data[static_cast<size_t>(h)] : -INFINITY,
                         q.row(rows.row_begin + i) + h * d, c.out().row(rows.row_begin + i) + h * d);
  }
  return {};
}

std::string describe_attention(const std::any& any) {
  const auto& a = std::any_cast<const AttentionAttrs&>(any);
  return fmt::format("{} heads{}{}", a.num_heads, a.window > 0 ? fmt::format(", window {}", a.window) : "",
                     a.soft_cap > 0 ? fmt::format(", soft cap {}", a.soft_cap) : "");
}

}  // namespace

const OpDef kAttention = {"attention", attention_reference, describe_attention};

}  // namespace redline
