// Appends keys and values to the KV cache.
#pragma once

#include "graph/graph.h"
#include "graph/reference.h"

namespace redline {

/// Appends keys and values of this step's tokens to the cache of one layer.
///
/// k, v       [tokens, num_heads * head_dim]  f32, heads as in the state
/// cache      a kKeyValue state
/// returns    an empty value that represents the updated cache: attention reads it. If the state is in a named group
///            (StateAttrs::group), the op also runs without a reader, for the attention of another graph
Value kv_append(GraphBuilder& g, Value k, Value v, Value cache);

/// Appends keys and values to the cache that is input `cache` of the op.
void append_reference(ReferenceContext& c, size_t cache, const HostTensor& k, const HostTensor& v);

extern const OpDef kKvAppend;

}  // namespace redline
