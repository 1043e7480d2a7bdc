// Attention with T5's relative position bias.
#pragma once

#include "graph/graph.h"

namespace redline {

struct RelativeBiasAttentionAttrs {
  int64_t num_heads = 0, head_dim = 0;
  int64_t num_buckets = 32, max_distance = 128;
  float scale = 1;  ///< factor of q . k; T5 does not scale
};

/// Attention with T5's relative position bias (Raffel et al. 2019, arXiv:1910.10683, section 2.1), both directions:
///   y[i, t, h] = sum_p softmax_p(scale * q[i, t, h] . k[i, p, h] + table[bucket(p - t), h]) v[i, p, h]
/// Half of the buckets are for p > t. Within a half, each small distance has its own bucket; the width of the others
/// grows logarithmically up to max_distance.
///
/// q, k, v      [batch * tokens, num_heads * head_dim]  f32
/// table        [num_buckets, num_heads]                f32, f16 or bf16; a weight
/// key_lengths  [batch]  i32, optional: keys from this index on are masked; an item of length 0 gives zeros
/// returns like q
Value relative_bias_attention(GraphBuilder& g, Value q, Value k, Value v, Value table, const Dim& batch,
                              const Dim& tokens, RelativeBiasAttentionAttrs attrs, Value key_lengths = {});

/// Returns the row of the table for a key `distance` positions after the query, rounded as in T5.
int64_t relative_bucket(int64_t distance, int64_t num_buckets, int64_t max_distance);
struct RelativeBiasAttentionOpAttrs {
  RelativeBiasAttentionAttrs a;
  Dim batch, tokens;
};

extern const OpDef kRelativeBiasAttention;

}  // namespace redline
