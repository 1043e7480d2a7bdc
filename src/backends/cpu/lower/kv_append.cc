#include "graph/ops/kv_append.h"

#include "backends/cpu/lowering.h"

namespace redline {
namespace {

struct Attrs {
  KvPlace cache;
  int64_t num_heads, head_dim;
  void (*append)(const KvAppendArgs&);
};

// operands: k, v. A tile covers some KV heads of all rows.
void run(const CpuStage& stage, const Tile& tile, const StepContext& step, WorkerContext&) {
  const auto& s = stage.attrs_as<Attrs>();
  const StateStep& state = step.states[s.cache.group];
  const int64_t stride = s.num_heads * s.head_dim;
  for (int64_t col = tile.col_begin; col < tile.col_end; col += s.head_dim) {
    const int64_t at = tile.row_begin * stride + col;
    s.append({stage.operand<float>(0) + at, stage.operand<float>(1) + at, stride, state.slots + tile.row_begin,
              tile.row_end - tile.row_begin, s.head_dim, s.cache.head(state, col / s.head_dim)});
  }
}

Status lower(LowerContext& c) {
  const StateAttrs& cache = c.in(2).state;
  const auto& in = c.op().inputs;
  auto* append = c.kernels().kv_append[static_cast<size_t>(cache.format)];
  if (!append) return unsupported("no kernel writes this cache format");
  LoweredStage stage;
  stage.run = run;
  stage.rows = c.in(0).shape[0];
  stage.cols = cache.num_heads * cache.head_dim;
  stage.col_begin = LowerContext::cut_columns(stage.cols, cache.head_dim, c.workers());
  stage.reads = {{in[0], Reads::kTile}, {in[1], Reads::kTile}};
  stage.writes = c.op().outputs;
  stage.attrs = std::make_shared<Attrs>(Attrs{c.kv_state(2), cache.num_heads, cache.head_dim, append});
  c.add_stage(std::move(stage), {c.at(in[0]), c.at(in[1])});
  return {};
}

}  // namespace

extern const CpuLowering kKvAppendLowering = {&kKvAppend, lower};

}  // namespace redline
