// Linear ops with one matrix per head, and concatenation within heads.
#pragma once

#include <span>

#include "graph/graph.h"

namespace redline {

/// Products of each head with a matrix of its own, as latent attention projects queries into the latent space and
/// results out of it (DeepSeek-V2, arXiv:2405.04434):
///   y[t, h * features + n] = sum_k weights[h][n, k] x[t, h * (columns of x / heads) + k]
///
/// x        [tokens, heads * at least in_features]  f32; only the first in_features columns of each head are read
/// weights  [features, in_features] of each head, of one type
/// returns  [tokens, heads * features]              f32
Value head_linear(GraphBuilder& g, Value x, std::span<const Value> weights);

/// y[t, head h] = [a[t, head h], b[t, head h]].
///
/// a, b     [tokens, heads * their own head size]  f32
/// returns  [tokens, heads * the sum of both]      f32
Value concat_heads(GraphBuilder& g, Value a, Value b, int64_t heads);

struct HeadAttrs {
  int64_t num_heads = 0;
};

/// The op behind head_linear(). Inputs: x, then one matrix per head.
extern const OpDef kHeadLinear;
extern const OpDef kConcatHeads;

}  // namespace redline
