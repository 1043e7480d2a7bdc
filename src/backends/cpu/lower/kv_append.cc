#include "graph/ops/kv_append.h"

#include "backends/cpu/lowering.h"

namespace redline {
namespace {

struct StageParams {
  KvAppendAttrs a;
  void (*append)(const KvAppendArgs&);
  Operand<const float> k, v;
  Operand<const int32_t> slots;
};

// A tile covers some KV heads of all rows.
void run(const StageParams& s, const Tile& tile, const StepContext& step, WorkerContext&) {
  const int64_t stride = s.a.num_kv_heads * s.a.head_dim;
  for (int64_t col = tile.col_begin; col < tile.col_end; col += s.a.head_dim) {
    const int64_t at = tile.row_begin * stride + col;
    s.append({.k = s.k + at,
              .v = s.v + at,
              .row_stride = stride,
              .slots = s.slots + tile.row_begin,
              .rows = tile.row_end - tile.row_begin,
              .head_dim = s.a.head_dim,
              .cache = step.attention->cache.head(s.a.layer, col / s.a.head_dim)});
  }
}

Status lower(LowerContext& c) {
  const auto& a = std::any_cast<const KvAppendAttrs&>(c.op().attrs);
  const auto& in = c.op().inputs;
  auto params = std::make_shared<StageParams>();
  params->a = a;
  params->append = c.kernels().kv_append[static_cast<size_t>(c.options().kv_format)];
  if (!params->append) return unsupported("no kernel writes this cache format");
  auto stage = LoweredStage::make<run>(TaskGrid::of(c.in(0).shape[0], a.num_kv_heads * a.head_dim), params);
  stage.grid.col_begin = LowerContext::cut_columns(stage.grid.cols, a.head_dim, c.workers());
  stage.read(params->k, in[0], Reads::kTile);
  stage.read(params->v, in[1], Reads::kTile);
  stage.read(params->slots, in[3], Reads::kRows);
  stage.write(c.op().outputs[0]);
  c.add_stage(std::move(stage));
  return {};
}

}  // namespace

extern const CpuLowering kKvAppendLowering = {&kKvAppend, lower};

}  // namespace redline
