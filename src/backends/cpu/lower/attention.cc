#include "graph/ops/attention.h"

#include "backends/cpu/lowering.h"
#include "graph/ops/kv_append.h"

namespace redline {
namespace {

struct Attrs {
  AttentionAttrs a;
  KvPlace cache;
  int64_t num_kv_heads, head_dim;
  void (*attend)(const AttentionArgs&);
  void (*merge)(const AttentionMergeArgs&);
};

// operands: q, y. Tile i computes the items that the attention plan assigns to work partition i.
void run_attend(const CpuStage& stage, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  const auto& s = stage.attrs_as<Attrs>();
  const StateStep& state = step.states[s.cache.group];
  const AttentionWork& plan = state.attention;
  const int64_t d = s.head_dim, stride = s.a.num_heads * d, group = s.a.num_heads / s.num_kv_heads;
  for (int32_t i = plan.slot_begin[tile.index]; i < plan.slot_begin[tile.index + 1]; ++i) {
    const AttentionItem& item = plan.items[i];
    const int64_t at = item.row_begin * stride + item.kv_head * group * d;
    const int64_t rows = item.row_end - item.row_begin;
    float* y = stage.operand<float>(1) + at;
    s.attend({stage.operand<float>(0) + at, stride, y, stride, rows, group, d, item.first_position, s.a.window,
              s.a.scale, state.pages[item.sequence], s.cache.head(state, item.kv_head), item.kv_begin, item.kv_end,
              item.split < 0 ? nullptr : plan.partials + item.partials, worker.scratch});
    if (item.split < 0) continue;
    const AttentionSplit& split = plan.splits[item.split];
    std::atomic<int32_t>& finished = plan.finished[item.split];
    // The last worker to finish sees the results of the others, and resets the counter for the next layer.
    if (finished.fetch_add(1, std::memory_order_acq_rel) + 1 < split.pieces) continue;
    finished.store(0, std::memory_order_relaxed);
    s.merge({plan.partials + split.partials, split.chunks, rows, group, d, y, stride});
  }
}

Status lower(LowerContext& c) {
  const auto& a = std::any_cast<const AttentionAttrs&>(c.op().attrs);
  const StateAttrs& cache = c.in(2).state;
  const auto format = static_cast<size_t>(cache.format);
  if (!c.kernels().attention[format]) return unsupported("no attention kernel for this cache format");
  const auto& in = c.op().inputs;
  LoweredStage attend;
  attend.run = run_attend;
  // work partitions of the plan, not rows of the step: each must run whatever the step's size
  attend.rows = c.workers();
  attend.cols = a.num_heads * cache.head_dim;
  attend.row_tiles = c.workers();
  attend.reads = {{in[0], Reads::kAll}, {in[1], Reads::kAll}};
  attend.writes = c.op().outputs;
  attend.attrs = std::make_shared<Attrs>(Attrs{a, c.kv_state(2), cache.num_heads, cache.head_dim,
                                               c.kernels().attention[format], c.kernels().attention_merge});
  c.add_stage(std::move(attend), {c.at(in[0]), c.at(c.op().outputs[0])});
  return {};
}

}  // namespace

extern const CpuLowering kAttentionLowering = {&kAttention, lower};

}  // namespace redline
