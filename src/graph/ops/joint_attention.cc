#include "graph/ops/joint_attention.h"

#include <algorithm>
#include <cmath>

#include "graph/ops/rms_norm.h"
#include "graph/ops/rope.h"
#include "graph/reference.h"

namespace redline {
namespace {

constexpr int64_t kJointMaxHeadDim = 512;  // limit of the kernels

Status check_heads(std::string_view op, int64_t num_heads, int64_t head_dim) {
  if (num_heads > 0 && head_dim > 0 && head_dim <= kJointMaxHeadDim) return {};
  return invalid_argument("{}: {} heads of {} elements; heads have 1 to {}", op, num_heads, head_dim, kJointMaxHeadDim);
}

}  // namespace

// The packed value is [batch, keys + 31, heads * 2 * head_dim rounded up to even] float32: the upper bound for whole
// pages.
Value pack_kv(GraphBuilder& g, const std::vector<KeySegment>& segments, const Dim& batch, int64_t num_heads,
              int64_t head_dim) {
  if (Status status = check_heads("pack_kv", num_heads, head_dim); !status.ok()) return g.fail(std::move(status));
  if (segments.empty()) return g.fail(invalid_argument("pack_kv: no keys are given"));
  PackKvAttrs a{{}, {}, 0, batch, num_heads, head_dim, false};
  std::vector<Value> inputs;
  for (const KeySegment& s : segments) {
    if (!s.k.valid() || !s.v.valid()) return {};
    const Shape want = {batch * s.tokens, num_heads * head_dim};
    for (Value value : {s.k, s.v})
      if (g.info(value).dtype != DType::kF32 || g.info(value).shape != want)
        return g.fail(invalid_argument("pack_kv: {} is {}, not f32 {}", g.info(value).name,
                                       to_string(g.info(value).shape), to_string(want)));
    inputs.insert(inputs.end(), {s.k, s.v});
    a.tokens.push_back(s.tokens);
    a.steps.emplace_back();
    a.keys = a.keys + s.tokens;
  }
  const Shape packed = {batch, a.keys + Dim(kSpareKeys), num_heads * 2 * kv_head_width(head_dim)};
  return g.add(kPackKv, inputs, DType::kF32, packed, a);
}

Value joint_attention(GraphBuilder& g, Value q, const Dim& batch, const Dim& tokens, Value keys, JointAttentionAttrs a,
                      Value key_lengths) {
  if (!q.valid() || !keys.valid()) return {};
  if (Status status = check_heads("joint_attention", a.num_heads, a.head_dim); !status.ok())
    return g.fail(std::move(status));
  if (a.window != 0) return g.fail(invalid_argument("joint_attention: a window needs packed sequences"));
  const Shape want = {batch * tokens, a.num_heads * a.head_dim};
  if (g.info(q).dtype != DType::kF32 || g.info(q).shape != want)
    return g.fail(invalid_argument("joint_attention: {} is {}, not f32 {}", g.info(q).name, to_string(g.info(q).shape),
                                   to_string(want)));
  const Shape& packed = g.info(keys).shape;
  if (packed.size() != 3 || packed[0] != batch || packed[2] != Dim(a.num_heads * 2 * kv_head_width(a.head_dim)))
    return g.fail(invalid_argument("joint_attention: keys {} are not {} heads of {} for each of {}, from pack_kv",
                                   to_string(packed), a.num_heads, a.head_dim, batch.to_string()));
  std::vector<Value> inputs = {q, keys};
  if (key_lengths.valid()) {
    if (g.info(key_lengths).dtype != DType::kI32 || g.info(key_lengths).shape != Shape{batch})
      return g.fail(invalid_argument("joint_attention: {} is {}, not i32 {}", g.info(key_lengths).name,
                                     to_string(g.info(key_lengths).shape), to_string({batch})));
    inputs.push_back(key_lengths);
  }
  return g.add(kJointAttention, inputs, DType::kF32, want,
               JointAttentionOpAttrs{a, batch, tokens, key_lengths.valid(), false, {}});
}

namespace {

Status check_sequences(const GraphBuilder& g, std::string_view op, const PackedSequences& s) {
  const ValueInfo& offsets = g.info(s.offsets);
  if (offsets.dtype == DType::kI32 && offsets.shape == Shape{s.count + Dim(1)}) return {};
  return invalid_argument("{}: offsets {} are {}, not i32 {}", op, offsets.name, to_string(offsets.shape),
                          to_string({s.count + Dim(1)}));
}

}  // namespace

// The packed value is [1, rows + 31 sequences, heads * 2 * head_dim rounded up to even] float32: whole pages for each
// sequence.
Value pack_kv(GraphBuilder& g, Value k, Value v, const PackedSequences& s, int64_t num_heads, int64_t head_dim) {
  if (!k.valid() || !v.valid() || !s.offsets.valid()) return {};
  if (Status status = check_heads("pack_kv", num_heads, head_dim); !status.ok()) return g.fail(std::move(status));
  if (Status status = check_sequences(g, "pack_kv", s); !status.ok()) return g.fail(std::move(status));
  const Shape want = {s.rows, num_heads * head_dim};
  for (Value value : {k, v})
    if (g.info(value).dtype != DType::kF32 || g.info(value).shape != want)
      return g.fail(invalid_argument("pack_kv: {} is {}, not f32 {}", g.info(value).name,
                                     to_string(g.info(value).shape), to_string(want)));
  const Shape packed = {1, s.rows + s.count * Dim(kSpareKeys), num_heads * 2 * kv_head_width(head_dim)};
  return g.add(kPackKv, {k, v, s.offsets}, DType::kF32, packed,
               PackKvAttrs{{s.rows}, {HeadSteps()}, s.rows, 1, num_heads, head_dim, true});
}

Value joint_attention(GraphBuilder& g, Value q, const PackedSequences& s, Value keys, JointAttentionAttrs a) {
  if (!q.valid() || !keys.valid() || !s.offsets.valid()) return {};
  if (Status status = check_heads("joint_attention", a.num_heads, a.head_dim); !status.ok())
    return g.fail(std::move(status));
  if (Status status = check_sequences(g, "joint_attention", s); !status.ok()) return g.fail(std::move(status));
  if (a.window < 0 || (a.window > 0 && a.causal))
    return g.fail(invalid_argument("joint_attention: a window of {}{}", a.window, a.causal ? " and causal" : ""));
  const Shape want = {s.rows, a.num_heads * a.head_dim};
  if (g.info(q).dtype != DType::kF32 || g.info(q).shape != want)
    return g.fail(invalid_argument("joint_attention: {} is {}, not f32 {}", g.info(q).name, to_string(g.info(q).shape),
                                   to_string(want)));
  const Shape packed = {1, s.rows + s.count * Dim(kSpareKeys), a.num_heads * 2 * kv_head_width(a.head_dim)};
  if (g.info(keys).shape != packed)
    return g.fail(
        invalid_argument("joint_attention: keys {} are not from a pack_kv of these sequences with {} heads of {}",
                         to_string(g.info(keys).shape), a.num_heads, a.head_dim));
  return g.add(kJointAttention, {q, keys, s.offsets}, DType::kF32, want,
               JointAttentionOpAttrs{a, 1, s.rows, false, true, {}});
}

namespace {

/// Returns x after `steps`. The inputs of the steps begin at `at`, which is advanced past them.
HostTensor stepped(ReferenceContext& c, const HeadSteps& steps, HostTensor x, int64_t head_dim, size_t& at) {
  if (steps.has_norm) rms_norm_reference(x, c.in(at++), steps.eps, x);
  if (steps.has_rope) {
    const HostTensor plain = x;
    rope_reference(plain, c.in(at++), head_dim, x);
  }
  return x;
}

// Packs keys and values: row p of item i holds K of all heads, then V of all heads, in float64.
Status keys_reference(ReferenceContext& c) {
  const auto& a = c.attrs<PackKvAttrs>();
  HostTensor& out = c.out();
  const int64_t batch = out.shape[0], width = a.num_heads * a.head_dim;
  std::vector<HostTensor> keys;
  size_t at = 2 * a.tokens.size() + (a.has_offsets ? 1 : 0);
  for (size_t s = 0; s < a.tokens.size(); ++s) keys.push_back(stepped(c, a.steps[s], c.in(2 * s), a.head_dim, at));
  for (int64_t i = 0; i < batch; ++i) {
    double* to = out.data.data() + i * out.shape[1] * out.shape[2];
    for (size_t s = 0; s < a.tokens.size(); ++s) {
      const HostTensor &k = keys[s], &v = c.in(2 * s + 1);
      const int64_t tokens = k.rows() / batch;
      for (int64_t t = 0; t < tokens; ++t, to += out.shape[2]) {
        std::copy_n(k.row(i * tokens + t), width, to);
        std::copy_n(v.row(i * tokens + t), width, to + width);
      }
    }
  }
  return {};
}

/// Computes one row of attention over keys [begin, end). Rows of keys are `stride` elements apart; values follow the
/// num_heads * head_dim elements of the keys in each row.
void attend_row(const JointAttentionAttrs& a, const double* q, const double* keys, int64_t stride, int64_t begin,
                int64_t end, double* y) {
  const int64_t width = a.num_heads * a.head_dim;
  std::vector<double> weight(static_cast<size_t>(std::max<int64_t>(0, end - begin)));
  for (int64_t h = 0; h < a.num_heads; ++h) {
    const double *qh = q + h * a.head_dim, *k = keys + begin * stride + h * a.head_dim;
    double* yh = y + h * a.head_dim;
    double most = -INFINITY, sum = 0;
    for (size_t p = 0; p < weight.size(); ++p) {
      double dot = 0;
      for (int64_t d = 0; d < a.head_dim; ++d) dot += qh[d] * k[static_cast<int64_t>(p) * stride + d];
      weight[p] = dot * a.scale;
      most = std::max(most, weight[p]);
    }
    for (double& w : weight) sum += w = std::exp(w - most);
    for (size_t p = 0; p < weight.size(); ++p)
      for (int64_t d = 0; d < a.head_dim; ++d)
        yh[d] += weight[p] / sum * k[static_cast<int64_t>(p) * stride + width + d];
  }
}

Status joint_attention_reference(ReferenceContext& c) {
  const auto& op = c.attrs<JointAttentionOpAttrs>();
  const JointAttentionAttrs& a = op.a;
  size_t at = op.has_lengths || op.has_offsets ? 3 : 2;
  const HostTensor q = stepped(c, op.steps, c.in(0), a.head_dim, at);
  const HostTensor& packed = c.in(1);
  const int64_t stride = packed.shape[2];
  const auto number = [&](int64_t i) { return static_cast<int64_t>(c.in(2).data[static_cast<size_t>(i)]); };
  if (op.has_offsets) {
    const auto count = static_cast<int64_t>(c.in(2).data.size()) - 1;
    for (int64_t s = 0; s < count; ++s)
      for (int64_t first = number(s), last = number(s + 1), t = first; t < last; ++t) {
        const int64_t begin = a.window > 0 ? std::max(first, t - a.window) : first;
        const int64_t end = a.causal ? t + 1 : a.window > 0 ? std::min(last, t + a.window + 1) : last;
        attend_row(a, q.row(t), packed.data.data(), stride, begin, end, c.out().row(t));
      }
    return {};
  }
  const int64_t batch = packed.shape[0], keys = packed.shape[1] - kSpareKeys;
  const int64_t tokens = batch > 0 ? q.rows() / batch : 0;
  for (int64_t i = 0; i < batch; ++i) {
    const int64_t length = std::clamp<int64_t>(op.has_lengths ? number(i) : keys, 0, keys);
    for (int64_t t = 0; t < tokens; ++t)
      attend_row(a, q.row(i * tokens + t), packed.data.data() + i * packed.shape[1] * stride, stride, 0,
                 a.causal ? std::min(length, t + 1) : length, c.out().row(i * tokens + t));
  }
  return {};
}

std::string describe_keys(const std::any& any) {
  const auto& a = std::any_cast<const PackKvAttrs&>(any);
  const bool steps = std::any_of(a.steps.begin(), a.steps.end(), [](const HeadSteps& s) { return s.any(); });
  return fmt::format("{} segments, {} heads of {}{}", a.tokens.size(), a.num_heads, a.head_dim,
                     steps ? ", +norm, rope" : "");
}

std::string describe_joint_attention(const std::any& any) {
  const auto& op = std::any_cast<const JointAttentionOpAttrs&>(any);
  return fmt::format("{} heads of {}{}{}{}{}", op.a.num_heads, op.a.head_dim, op.a.causal ? ", causal" : "",
                     op.a.window > 0 ? fmt::format(", window {}", op.a.window) : "", op.steps.has_norm ? ", +norm" : "",
                     op.steps.has_rope ? ", +rope" : "");
}

// Counts Q K^T and P V over all query-key pairs. Returns 0 for packed sequences, whose pairs depend on their lengths.
Dim attention_flops(const Graph& graph, const Op& op) {
  const auto& a = std::any_cast<const JointAttentionOpAttrs&>(op.attrs);
  if (a.has_offsets) return 0;
  const Dim keys = graph.value(op.inputs[1]).shape[1] + Dim(-kSpareKeys);
  return a.batch * a.tokens * keys * Dim(4 * a.a.num_heads * a.a.head_dim);
}

}  // namespace

const OpDef kPackKv = {"pack_kv", keys_reference, describe_keys};

const OpDef kJointAttention = {.name = "joint_attention",
                               .reference = joint_attention_reference,
                               .describe = describe_joint_attention,
                               .prepares_output = true,
                               .flops = attention_flops};

}  // namespace redline
