#pragma once

#include "graph/graph.h"
#include "graph/reference.h"

namespace redline {

struct KvAppendAttrs {
  int64_t layer = 0;  ///< index of the cache layer
  int64_t num_kv_heads = 0, head_dim = 0;
};

/// Writes keys and values of this step's tokens into the cache of one layer.
///
/// k, v       [tokens, num_kv_heads * head_dim]  f32
/// positions  [tokens]  i32, position of each token in its sequence (used by the reference)
/// slots      [tokens]  i32, page * page_tokens + offset of each token's k and v (used by the kernels)
/// returns    an empty value that represents the updated cache: attention reads it
Value kv_append(GraphBuilder& g, Value k, Value v, Value positions, Value slots, KvAppendAttrs attrs);

/// Appends keys and values to the reference cache.
void append_reference(ReferenceCache& cache, int64_t layer, const HostTensor& positions, const HostTensor& k,
                      const HostTensor& v);

extern const OpDef kKvAppend;

}  // namespace redline
