#include "graph/ops/relative_bias_attention.h"

#include <algorithm>
#include <cmath>

#include "graph/reference.h"

namespace redline {
namespace {

constexpr int64_t kRelativeBiasMaxHeadDim = 512;  // limit of the kernel

}  // namespace

// Computes the bucket in float32 as in training: for some distances the logarithm is so close to an integer that
// another precision gives another bucket.
int64_t relative_bucket(int64_t distance, int64_t num_buckets, int64_t max_distance) {
  const int64_t half = num_buckets / 2, exact = half / 2, away = std::abs(distance);
  const int64_t first = distance > 0 ? half : 0;
  if (away < exact) return first + away;
  const double whole = std::log(static_cast<double>(max_distance) / static_cast<double>(exact));
  const float steps = std::log(static_cast<float>(away) / static_cast<float>(exact)) / static_cast<float>(whole) *
                      static_cast<float>(half - exact);
  return first + std::min(half - 1, exact + static_cast<int64_t>(steps));
}

Value relative_bias_attention(GraphBuilder& g, Value q, Value k, Value v, Value table, const Dim& batch,
                              const Dim& tokens, RelativeBiasAttentionAttrs a, Value key_lengths) {
  if (!q.valid() || !k.valid() || !v.valid() || !table.valid()) return {};
  if (a.num_heads <= 0 || a.head_dim <= 0 || a.head_dim > kRelativeBiasMaxHeadDim)
    return g.fail(invalid_argument("relative_bias_attention: {} heads of {} elements; heads have 1 to {}", a.num_heads,
                                   a.head_dim, kRelativeBiasMaxHeadDim));
  if (a.num_buckets < 4 || a.max_distance <= a.num_buckets / 4)
    return g.fail(
        invalid_argument("relative_bias_attention: {} buckets up to a distance of {}; at least 4 are needed, and a "
                         "quarter of them below the distance",
                         a.num_buckets, a.max_distance));
  const Shape want = {batch * tokens, a.num_heads * a.head_dim};
  for (Value x : {q, k, v})
    if (g.info(x).dtype != DType::kF32 || g.info(x).shape != want)
      return g.fail(invalid_argument("relative_bias_attention: {} is {}, not f32 {}", g.info(x).name,
                                     to_string(g.info(x).shape), to_string(want)));
  if (g.info(table).kind != ValueKind::kWeight || g.info(table).shape != Shape{a.num_buckets, a.num_heads})
    return g.fail(invalid_argument("relative_bias_attention: {} is {}, not a weight {}", g.info(table).name,
                                   to_string(g.info(table).shape), to_string({a.num_buckets, a.num_heads})));
  std::vector<Value> inputs = {q, k, v, table};
  if (key_lengths.valid()) {
    if (g.info(key_lengths).dtype != DType::kI32 || g.info(key_lengths).shape != Shape{batch})
      return g.fail(invalid_argument("relative_bias_attention: {} is {}, not i32 {}", g.info(key_lengths).name,
                                     to_string(g.info(key_lengths).shape), to_string({batch})));
    inputs.push_back(key_lengths);
  }
  return g.add(kRelativeBiasAttention, inputs, DType::kF32, want, RelativeBiasAttentionOpAttrs{a, batch, tokens});
}

namespace {

Status relative_bias_attention_reference(ReferenceContext& c) {
  const auto& op = c.attrs<RelativeBiasAttentionOpAttrs>();
  const auto& a = op.a;
  const HostTensor &q = c.in(0), &k = c.in(1), &v = c.in(2), &table = c.in(3);
  const int64_t batch = op.batch.eval(c.sizes()), tokens = op.tokens.eval(c.sizes());
  std::vector<double> weight;
  for (int64_t i = 0; i < batch; ++i) {
    const auto given = c.num_inputs() > 4 ? static_cast<int64_t>(c.in(4).data[static_cast<size_t>(i)]) : tokens;
    const int64_t length = std::clamp<int64_t>(given, 0, tokens), first = i * tokens;
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t h = 0; h < a.num_heads; ++h) {
        const int64_t at = h * a.head_dim;
        weight.assign(static_cast<size_t>(length), 0);
        double most = -INFINITY, sum = 0;
        for (int64_t p = 0; p < length; ++p) {
          double dot = 0;
          for (int64_t d = 0; d < a.head_dim; ++d) dot += q.row(first + t)[at + d] * k.row(first + p)[at + d];
          double& w = weight[static_cast<size_t>(p)];
          w = dot * a.scale + table.row(relative_bucket(p - t, a.num_buckets, a.max_distance))[h];
          most = std::max(most, w);
        }
        for (double& w : weight) sum += w = std::exp(w - most);
        for (int64_t p = 0; p < length; ++p)
          for (int64_t d = 0; d < a.head_dim; ++d)
            c.out().row(first + t)[at + d] += weight[static_cast<size_t>(p)] / sum * v.row(first + p)[at + d];
      }
  }
  return {};
}

std::string describe_relative_bias_attention(const std::any& any) {
  const auto& a = std::any_cast<const RelativeBiasAttentionOpAttrs&>(any).a;
  return fmt::format("{} heads of {}, {} buckets up to {}", a.num_heads, a.head_dim, a.num_buckets, a.max_distance);
}

// Counts Q K^T and P V over all query-key pairs.
Dim relative_bias_attention_flops(const Graph&, const Op& op) {
  const auto& a = std::any_cast<const RelativeBiasAttentionOpAttrs&>(op.attrs);
  return a.batch * a.tokens * a.tokens * Dim(4 * a.a.num_heads * a.a.head_dim);
}

}  // namespace

const OpDef kRelativeBiasAttention = {.name = "relative_bias_attention",
                                      .reference = relative_bias_attention_reference,
                                      .describe = describe_relative_bias_attention,
                                      .flops = relative_bias_attention_flops};

}  // namespace redline
