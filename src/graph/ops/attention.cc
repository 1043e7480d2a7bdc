#include "graph/ops/attention.h"

#include <algorithm>
#include <cmath>

#include "graph/ops/kv_append.h"
#include "graph/reference.h"

namespace redline {

Value attention(GraphBuilder& g, Value q, Value k, Value v, Value positions, Value slots, AttentionAttrs a) {
  if (!q.valid() || !k.valid() || !v.valid()) return {};
  if (a.num_heads <= 0 || a.num_kv_heads <= 0 || a.num_heads % a.num_kv_heads != 0)
    return g.fail(
        invalid_argument("attention: {} heads do not divide among {} key-value heads", a.num_heads, a.num_kv_heads));
  const Dim tokens = g.info(q).shape[0];
  const Shape q_shape = {tokens, a.num_heads * a.head_dim}, kv_shape = {tokens, a.num_kv_heads * a.head_dim};
  if (g.info(q).shape != q_shape || g.info(k).shape != kv_shape || g.info(v).shape != kv_shape)
    return g.fail(invalid_argument("attention: q {}, k {}, v {} are not {} heads over {} of {}",
                                   to_string(g.info(q).shape), to_string(g.info(k).shape), to_string(g.info(v).shape),
                                   a.num_heads, a.num_kv_heads, a.head_dim));
  const Value cached = kv_append(g, k, v, positions, slots, {a.layer, a.num_kv_heads, a.head_dim});
  return g.add(kAttention, {q, cached, positions}, DType::kF32, q_shape, a);
}

namespace {

Status reference(ReferenceContext& c) {
  const auto& a = c.attrs<AttentionAttrs>();
  const HostTensor& q = c.in(0);
  const auto& layer = c.cache().layers[a.layer];
  const int64_t group = a.num_heads / a.num_kv_heads;
  std::vector<double> weight;
  for (int64_t t = 0; t < q.rows(); ++t) {
    const auto position = static_cast<int64_t>(c.in(2).data[static_cast<size_t>(t)]);
    const int64_t first = a.window > 0 ? std::max<int64_t>(0, position - a.window + 1) : 0;
    for (int64_t h = 0; h < a.num_heads; ++h) {
      const double* qh = q.row(t) + h * a.head_dim;
      const int64_t kv = h / group * a.head_dim;
      weight.assign(static_cast<size_t>(position - first + 1), 0);
      double most = -INFINITY, sum = 0;
      for (int64_t p = first; p <= position; ++p) {
        double dot = 0;
        for (int64_t i = 0; i < a.head_dim; ++i)
          dot += qh[i] * layer.k[static_cast<size_t>(p)][static_cast<size_t>(kv + i)];
        weight[static_cast<size_t>(p - first)] = dot * a.scale;
        most = std::max(most, dot * a.scale);
      }
      for (double& w : weight) sum += w = std::exp(w - most);
      double* y = c.out().row(t) + h * a.head_dim;
      for (int64_t p = first; p <= position; ++p)
        for (int64_t i = 0; i < a.head_dim; ++i)
          y[i] += weight[static_cast<size_t>(p - first)] / sum *
                  layer.v[static_cast<size_t>(p)][static_cast<size_t>(kv + i)];
    }
  }
  return {};
}

std::string describe(const std::any& any) {
  const auto& a = std::any_cast<const AttentionAttrs&>(any);
  return fmt::format("{} heads over {} of {}{}", a.num_heads, a.num_kv_heads, a.head_dim,
                     a.window > 0 ? fmt::format(", window {}", a.window) : "");
}

}  // namespace

const OpDef kAttention = {"attention", reference, describe};

}  // namespace redline
