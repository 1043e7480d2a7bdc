#include "graph/ops/kv_append.h"

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

}  // namespace

const OpDef kKvAppend = {"kv_append", reference};

}  // namespace redline
