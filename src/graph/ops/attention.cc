#include "graph/ops/attention.h"

#include <algorithm>
#include <cmath>

#include "graph/lower.h"
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

struct Attrs {
  AttentionAttrs a;
  void (*attend)(const AttentionArgs&);
  void (*merge)(const AttentionMergeArgs&);
};

// operands: q, y. Tile i computes the items that the step's plan gives to slot i.
void run_attend(const Stage& stage, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const auto& s = stage.attrs_as<Attrs>();
  const AttentionStep& plan = *step.attention;
  const int64_t stride = s.a.num_heads * s.a.head_dim, group = s.a.num_heads / s.a.num_kv_heads;
  for (int32_t i = plan.slot_begin[tile.index]; i < plan.slot_begin[tile.index + 1]; ++i) {
    const AttentionItem& item = plan.items[i];
    const int64_t at = item.row_begin * stride + item.kv_head * group * s.a.head_dim;
    const int64_t rows = item.row_end - item.row_begin;
    float* y = stage.operand<float>(1) + at;
    s.attend({stage.operand<float>(0) + at, stride, y, stride, rows, group, s.a.head_dim, item.first_position,
              s.a.window, s.a.scale, plan.pages[item.sequence], plan.cache.head(s.a.layer, item.kv_head), item.kv_begin,
              item.kv_end, item.split < 0 ? nullptr : plan.partials + item.partials, worker.scratch});
    if (item.split < 0) continue;
    const AttentionSplit& split = plan.splits[item.split];
    std::atomic<int32_t>& finished = plan.finished[item.split];
    // Whoever comes last sees what the others wrote, and leaves the counter ready for the next layer.
    if (finished.fetch_add(1, std::memory_order_acq_rel) + 1 < split.pieces) continue;
    finished.store(0, std::memory_order_relaxed);
    s.merge({plan.partials + split.partials, split.chunks, rows, group, s.a.head_dim, y, stride});
  }
}

Status lower(LowerContext& c) {
  const auto& a = std::any_cast<const AttentionAttrs&>(c.op().attrs);
  const auto format = static_cast<size_t>(c.options().kv_format);
  if (!c.kernels().attention[format]) return unsupported("no attention kernel for this cache format");
  const auto& in = c.op().inputs;
  Stage attend;
  attend.run = run_attend;
  attend.rows = c.workers();  // slots of the plan, not rows of the step: each must run whatever the step's size
  attend.cols = a.num_heads * a.head_dim;
  attend.row_tiles = c.workers();
  attend.reads = {{in[0], Reads::kAll}, {in[1], Reads::kAll}};
  attend.writes = c.op().outputs;
  attend.attrs = std::make_shared<Attrs>(Attrs{a, c.kernels().attention[format], c.kernels().attention_merge});
  c.add_stage(std::move(attend), {c.at(in[0]), c.at(c.op().outputs[0])});
  return {};
}

std::string describe(const std::any& any) {
  const auto& a = std::any_cast<const AttentionAttrs&>(any);
  return fmt::format("{} heads over {} of {}{}", a.num_heads, a.num_kv_heads, a.head_dim,
                     a.window > 0 ? fmt::format(", window {}", a.window) : "");
}

}  // namespace

const OpDef kAttention = {"attention", reference, lower, describe};

}  // namespace redline
