#include "graph/ops/kv_append.h"

#include <algorithm>

#include "tensor/kv_limits.h"

namespace redline {

Value kv_append(GraphBuilder& g, Value k, Value v, Value cache) {
  if (!k.valid() || !v.valid() || !cache.valid()) return {};
  const ValueInfo& state = g.info(cache);
  const StateAttrs& a = state.state;
  if (state.kind != ValueKind::kState || a.kind != StateKind::kKeyValue)
    return g.fail(invalid_argument("kv_append: {} is not a key-value state", state.name));
  const Shape shape = {g.info(k).shape[0], a.num_heads * a.head_dim};
  if (g.info(k).shape != shape || g.info(v).shape != shape)
    return g.fail(invalid_argument("kv_append: k {} and v {} are not {} heads of {}", to_string(g.info(k).shape),
                                   to_string(g.info(v).shape), a.num_heads, a.head_dim));
  if (a.head_dim > kMaxKvHeadDim)
    return g.fail(unsupported("kv_append: heads of {} elements; at most {}", a.head_dim, kMaxKvHeadDim));
  return g.add(kKvAppend, {k, v, cache}, DType::kF32, {Dim(0)});
}

void append_reference(ReferenceContext& c, size_t cache, const HostTensor& k, const HostTensor& v) {
  const ReferenceState state = c.state(cache);
  const int64_t d = state.attrs().head_dim;
  for (size_t s = 0; s < c.sequences().size(); ++s) {
    const SequenceRows& rows = c.sequences()[s];
    for (int64_t i = 0; i < rows.rows; ++i)
      for (int64_t h = 0; h < state.attrs().num_heads; ++h) {
        std::copy_n(k.row(rows.row_begin + i) + h * d, d, state.key(s, rows.first_position + i, h));
        std::copy_n(v.row(rows.row_begin + i) + h * d, d, state.value(s, rows.first_position + i, h));
      }
  }
}

namespace {

Status kv_append_reference(ReferenceContext& c) {
  append_reference(c, 2, c.in(0), c.in(1));
  return {};
}

}  // namespace

const OpDef kKvAppend = {.name = "kv_append", .reference = kv_append_reference, .writes_state = true};

}  // namespace redline
