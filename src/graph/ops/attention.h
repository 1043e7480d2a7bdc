// Causal attention over the KV cache of one layer.
#pragma once

#include "graph/graph.h"

namespace redline {

struct AttentionAttrs {
  int64_t num_heads = 0;
  int64_t window = 0;  ///< number of positions that a token attends to, including itself; 0: all earlier ones
  float scale = 0;     ///< factor of q . k; usually 1 / sqrt(head_dim)
  float soft_cap = 0;  ///< scores become soft_cap tanh(score / soft_cap); 0: scores are not capped
};

/// Causal grouped-query attention (Ainslie et al. 2023, arXiv:2305.13245) over the cache of one layer:
///   kv_append(k, v, cache), then for each token t and head h, over the visible positions p,
///   y[t, h] = sum_p softmax_p(cap(scale * q[t, h] . K[p, h / group])) V[p, h / group]
/// cap is the soft cap of `attrs` (Gemma Team 2024, arXiv:2408.00118). `sinks` add the term e^sinks[h] to the softmax's
/// divisor, so that a head may attend to nothing (OpenAI 2025, arXiv:2508.10925).
///
/// q          [tokens, num_heads * head_dim]     f32
/// k, v       [tokens, num_kv_heads * head_dim]  f32
/// cache      a kKeyValue state with the heads of k and v, and the window of `attrs` or none
/// sinks      [num_heads]                        a weight, or invalid
/// returns    [tokens, num_heads * head_dim]     f32
Value attention(GraphBuilder& g, Value q, Value k, Value v, Value cache, AttentionAttrs attrs, Value sinks = {});

/// The attention op without kv_append. Inputs: q, the output of kv_append, the cache, and the sinks if there are any.
extern const OpDef kAttention;

}  // namespace redline
