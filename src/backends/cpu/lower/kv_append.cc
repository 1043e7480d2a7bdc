#include "graph/ops/kv_append.h"

#include "backends/cpu/lowering.h"

namespace redline {
namespace {

struct KvAppendParams {
  KvPlace cache;
  int64_t num_heads, head_dim;
  void (*append)(const KvAppendArgs&);
  Operand<const float> k, v;
};

// A tile covers some KV heads of all rows.
void run_kv_append(const KvAppendParams& s, const Tile& tile, const StepContext& step, WorkerContext&) {
  const StateStep& state = step.states[s.cache.group];
  const int64_t stride = s.num_heads * s.head_dim;
  for (int64_t col = tile.col_begin; col < tile.col_end; col += s.head_dim) {
    const int64_t at = tile.row_begin * stride + col;
    s.append({.k = s.k + at,
              .v = s.v + at,
              .row_stride = stride,
              .slots = state.slots + tile.row_begin,
              .rows = tile.row_end - tile.row_begin,
              .head_dim = s.head_dim,
              .cache = kv_head(s.cache, state, col / s.head_dim)});
  }
}

Status lower_kv_append(LowerContext& c) {
  const StateAttrs& cache = c.in(2).state;
  const auto& in = c.op().inputs;
  auto params = std::make_shared<KvAppendParams>();
  params->cache = c.kv_state(2);
  params->num_heads = cache.num_heads;
  params->head_dim = cache.head_dim;
  params->append = c.kernels().kv_append[static_cast<size_t>(cache.format)];
  if (!params->append) return unsupported("no kernel writes this cache format");
  auto stage =
      LoweredStage::make<run_kv_append>(TaskGrid::of(c.in(0).shape[0], cache.num_heads * cache.head_dim), params);
  stage.grid.col_begin = LowerContext::cut_columns(stage.grid.cols, cache.head_dim, c.workers());
  stage.read(params->k, in[0], Reads::kTile);
  stage.read(params->v, in[1], Reads::kTile);
  stage.write(c.op().outputs[0]);
  c.add_stage(std::move(stage));
  return {};
}

constexpr CpuLowering kKvAppendOps[] = {{&kKvAppend, lower_kv_append}};

}  // namespace

extern const CpuLowerings kKvAppendLowerings = kKvAppendOps;

}  // namespace redline
