#include "graph/ops/attention.h"

#include "backends/cpu/lowering.h"
#include "kernels/cpu/attention/attention_args.h"

namespace redline {
namespace {

struct AttentionParams {
  AttentionAttrs a;
  KvPlace cache;
  std::shared_ptr<AttentionScratch> scratch;
  int64_t num_kv_heads, head_dim;
  void (*attend)(const AttentionArgs&);
  void (*attend_few_rows)(const AttentionArgs&);
  void (*merge)(const AttentionMergeArgs&);
  const float *sinks = nullptr, *slopes = nullptr;  // [num_heads]
  bool has_mask = false, has_bits = false;

  /// Returns the elements of `numbers` (one per query head, or nullptr) that belong to the query heads of a KV head.
  const float* of_head(const float* numbers, int64_t kv_head) const {
    return numbers != nullptr ? numbers + kv_head * (a.num_heads / num_kv_heads) : nullptr;
  }
  Operand<const float> q;
  Operand<const int32_t> ranges, blocks, bits;
  Operand<float> y;
};

/// Counts a finished piece of a split. The worker that finishes the last piece reduces all pieces and resets the
/// counter for the next layer.
void finish(const AttentionParams& s, const AttentionWork& plan, int32_t index, int64_t kv_head) {
  const AttentionSplit& split = plan.splits[index];
  std::atomic<int32_t>& finished = s.scratch->finished()[index];
  const float* partials = s.scratch->partials();
  if (finished.fetch_add(1, std::memory_order_acq_rel) + 1 < split.pieces) return;
  finished.store(0, std::memory_order_relaxed);
  const int64_t d = s.head_dim, stride = s.a.num_heads * d, group = s.a.num_heads / s.num_kv_heads;
  s.merge({.partials = partials + split.partials,
           .chunks = split.chunks,
           .rows = split.row_end - split.row_begin,
           .group = group,
           .head_dim = d,
           .y = s.y + split.row_begin * stride + kv_head * group * d,
           .y_stride = stride,
           .shared = partials + split.shared,
           .num_shared = split.num_shared,
           .shared_stride = split.shared_stride,
           .sinks = s.of_head(s.sinks, kv_head)});
}

// Task i computes the items that the attention plan assigns to work partition i.
void run_attend(const AttentionParams& s, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const StateStep& state = step.states[s.cache.group];
  const AttentionWork& plan = state.attention;
  const int64_t d = s.head_dim, stride = s.a.num_heads * d, group = s.a.num_heads / s.num_kv_heads;
  for (int32_t i = plan.partition_begin[tile.index]; i < plan.partition_begin[tile.index + 1]; ++i) {
    const AttentionItem& item = plan.items[i];
    const int64_t head = item.kv_head * group * d, at = (item.is_group ? 0 : item.row_begin * stride) + head;
    const auto attend = item.has_few_rows ? s.attend_few_rows : s.attend;
    const auto sequence = static_cast<size_t>(item.sequence);
    AttentionMaskView mask;
    if (s.has_mask) mask = {s.ranges + 2 * item.row_begin, s.blocks + 0, s.has_bits ? s.bits + 0 : nullptr};
    attend({.q = s.q + at,
            .q_stride = stride,
            .y = s.y + at,
            .y_stride = stride,
            .rows = item.row_end - item.row_begin,
            .group = group,
            .head_dim = d,
            .first_position = item.first_position,
            .window = s.a.window,
            .scale = s.a.scale,
            .pages = state.pages[sequence],
            .cache = kv_head(s.cache, state, item.kv_head),
            .kv_begin = item.kv_begin,
            .kv_end = item.kv_end,
            .partials = item.split < 0 ? nullptr : s.scratch->partials() + item.partials,
            .scratch = worker.scratch,
            .merges_chunks = item.merges_chunks,
            .row_places = item.is_group ? plan.group_rows + item.row_begin : nullptr,
            .soft_cap = s.a.soft_cap,
            .sinks = s.of_head(s.sinks, item.kv_head),
            .chunk = s.a.chunk,
            .is_causal = s.a.is_causal,
            .kv_length = s.a.is_causal ? 0 : state.length(sequence, step.sequences[sequence]),
            .slopes = s.of_head(s.slopes, item.kv_head),
            .mask = mask});
    for (int32_t k = 0; item.split >= 0 && k < item.num_splits; ++k) finish(s, plan, item.split + k, item.kv_head);
  }
}

Status lower_attention(LowerContext& c) {
  const auto& op = std::any_cast<const AttentionOpAttrs&>(c.op().attrs);
  const AttentionAttrs& a = op.a;
  const StateAttrs& cache = c.in(AttentionOpAttrs::kCache).state;
  const auto format = static_cast<size_t>(cache.format);
  REDLINE_TRY(check_attention_order(c.graph(), c.op()));
  if (!c.kernels().attention[format] || !c.kernels().attention_vectors[format])
    return unsupported("no attention kernel for this cache format");
  const auto& in = c.op().inputs;
  auto params = std::make_shared<AttentionParams>();
  params->a = a;
  params->cache = c.kv_state(AttentionOpAttrs::kCache);
  params->num_kv_heads = cache.num_heads;
  params->head_dim = cache.head_dim;
  params->scratch = c.attention_scratch(params->cache.group);
  params->attend = c.kernels().attention[format];
  params->attend_few_rows = c.kernels().attention_vectors[format];
  if (c.options().batch_invariance == BatchInvariance::kAlways || op.has_slopes || op.has_mask)
    params->attend = params->attend_few_rows;
  if (op.has_sinks) {
    REDLINE_ASSIGN(params->sinks, c.dense_weight(op.sinks()));
  }
  if (op.has_slopes) {
    REDLINE_ASSIGN(params->slopes, c.dense_weight(op.slopes()));
  }
  params->has_mask = op.has_mask;
  params->has_bits = op.has_bits;
  params->merge = c.kernels().attention_merge;
  auto attend =
      LoweredStage::make<run_attend>(TaskGrid::work_partitions(c.workers(), a.num_heads * cache.head_dim), params);
  attend.read(params->q, in[0], Reads::kAll);
  if (!op.is_cross) attend.read(in[1], Reads::kAll);
  if (op.has_mask) attend.read(params->ranges, in[op.ranges()], Reads::kAll);
  if (op.has_mask) attend.read(params->blocks, in[op.blocks()], Reads::kAll);
  if (op.has_bits) attend.read(params->bits, in[op.bits()], Reads::kAll);
  attend.write(params->y, c.op().outputs[0]);
  c.add_stage(std::move(attend));
  return {};
}

constexpr CpuLowering kAttentionOps[] = {{&kAttention, lower_attention}};

}  // namespace

extern const CpuLowerings kAttentionLowerings = kAttentionOps;

}  // namespace redline
