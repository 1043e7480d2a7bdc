#pragma once

#include "graph/graph.h"
#include "graph/reference.h"

namespace redline {

struct KvAppendAttrs {
  int64_t layer = 0;  ///< which layer of the cache
  int64_t num_kv_heads = 0, head_dim = 0;
};

/// Writes keys and values of this step's tokens into the cache of one layer.
///
/// k, v       [tokens, num_kv_heads * head_dim]  f32
/// positions  [tokens]  i32, position of each token in its sequence (the reference looks at it)
/// slots      [tokens]  i32, page * page_tokens + place of each token's k and v (the kernels look at it)
/// returns    a value without elements that stands for the cache being written: attention reads it
Value kv_append(GraphBuilder& g, Value k, Value v, Value positions, Value slots, KvAppendAttrs attrs);

/// What kv_append does to the history of keys and values.
void append_reference(ReferenceCache& cache, int64_t layer, const HostTensor& positions, const HostTensor& k,
                      const HostTensor& v);

extern const OpDef kKvAppend;

}  // namespace redline
