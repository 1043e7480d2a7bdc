#include "graph/ops/kv_append.h"

#include "backends/cpu/lowering.h"

namespace redline {
namespace {

struct Attrs {
  KvAppendAttrs a;
  void (*append)(const KvAppendArgs&);
};

// operands: k, v, slots. A tile covers some KV heads of all rows.
void run(const CpuStage& stage, const Tile& tile, const StepContext& step, WorkerContext&) {
  const auto& s = stage.attrs_as<Attrs>();
  const int64_t stride = s.a.num_kv_heads * s.a.head_dim;
  for (int64_t col = tile.col_begin; col < tile.col_end; col += s.a.head_dim) {
    const int64_t at = tile.row_begin * stride + col;
    s.append({stage.operand<float>(0) + at, stage.operand<float>(1) + at, stride,
              stage.operand<int32_t>(2) + tile.row_begin, tile.row_end - tile.row_begin, s.a.head_dim,
              step.attention->cache.head(s.a.layer, col / s.a.head_dim)});
  }
}

Status lower(LowerContext& c) {
  const auto& a = std::any_cast<const KvAppendAttrs&>(c.op().attrs);
  const auto& in = c.op().inputs;
  auto* append = c.kernels().kv_append[static_cast<size_t>(c.options().kv_format)];
  if (!append) return unsupported("no kernel writes this cache format");
  LoweredStage stage;
  stage.run = run;
  stage.rows = c.in(0).shape[0];
  stage.cols = a.num_kv_heads * a.head_dim;
  stage.col_begin = LowerContext::cut_columns(stage.cols, a.head_dim, c.workers());
  stage.reads = {{in[0], Reads::kTile}, {in[1], Reads::kTile}, {in[3], Reads::kRows}};
  stage.writes = c.op().outputs;
  stage.attrs = std::make_shared<Attrs>(Attrs{a, append});
  c.add_stage(std::move(stage), {c.at(in[0]), c.at(in[1]), c.at(in[3])});
  return {};
}

}  // namespace

extern const CpuLowering kKvAppendLowering = {&kKvAppend, lower};

}  // namespace redline
