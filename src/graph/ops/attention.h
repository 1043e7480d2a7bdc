#pragma once

#include "graph/graph.h"

namespace redline {

struct AttentionAttrs {
  int64_t layer = 0;  ///< which layer of the cache
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int64_t window = 0;  ///< positions that a token sees, itself included; 0: all before it
  float scale = 0;     ///< of q . k; usually 1 / sqrt(head_dim)
};

/// Causal grouped-query attention (Ainslie et al. 2023, arXiv:2305.13245) over the cache of one layer:
///   kv_append(k, v), then for each token t and head h, over the positions p it sees,
///   y[t, h] = sum_p softmax_p(scale * q[t, h] . K[p, h / group]) V[p, h / group]
///
/// q          [tokens, num_heads * head_dim]     f32
/// k, v       [tokens, num_kv_heads * head_dim]  f32
/// positions  [tokens]  i32, position of each token in its sequence (the reference looks at it)
/// slots      [tokens]  i32, page * page_tokens + place of each token's k and v (the kernels look at it)
/// returns    [tokens, num_heads * head_dim]     f32
Value attention(GraphBuilder& g, Value q, Value k, Value v, Value positions, Value slots, AttentionAttrs attrs);

/// The op itself: inputs q, what kv_append returned, positions.
extern const OpDef kAttention;

}  // namespace redline
