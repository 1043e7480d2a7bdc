#include "graph/ops/kv_append.h"

#include "graph/lower.h"

namespace redline {

Value kv_append(GraphBuilder& g, Value k, Value v, Value positions, Value slots, KvAppendAttrs attrs) {
  if (!k.valid() || !v.valid()) return {};
  return g.add(kKvAppend, {k, v, positions, slots}, DType::kF32, {Dim(0)}, attrs);
}

void append_reference(ReferenceCache& cache, int64_t layer_number, const HostTensor& positions, const HostTensor& k,
                      const HostTensor& v) {
  auto& layer = cache.layers[layer_number];
  for (int64_t t = 0; t < k.rows(); ++t) {
    const auto position = static_cast<size_t>(positions.data[static_cast<size_t>(t)]);
    if (layer.k.size() <= position) {
      layer.k.resize(position + 1);
      layer.v.resize(position + 1);
    }
    layer.k[position].assign(k.row(t), k.row(t) + k.cols());
    layer.v[position].assign(v.row(t), v.row(t) + v.cols());
  }
}

namespace {

Status reference(ReferenceContext& c) {
  append_reference(c.cache(), c.attrs<KvAppendAttrs>().layer, c.in(2), c.in(0), c.in(1));
  return {};
}

struct Attrs {
  KvAppendAttrs a;
  void (*append)(const KvAppendArgs&);
};

// operands: k, v, slots. A tile is some KV heads of all rows.
void run(const Stage& stage, const Tile& tile, const StepContext& step, WorkerContext&) {
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
  Stage stage;
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

const OpDef kKvAppend = {"kv_append", reference, lower};

}  // namespace redline
