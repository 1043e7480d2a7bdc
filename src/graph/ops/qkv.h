#pragma once

#include "graph/graph.h"

namespace redline {

struct QkvAttrs {
  int64_t layer = 0;  ///< which layer of the cache
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  bool has_bias = false;    ///< of all three products
  bool has_q_norm = false;  ///< RMS norm of each head before rope, and
  bool has_k_norm = false;  ///< of each key head
  float q_norm_eps = 0, k_norm_eps = 0;
};
/// Indices of the optional inputs of kQkv; 0 for those that the attributes leave out.
struct QkvInputs {
  size_t bias = 0, q_norm = 0, k_norm = 0, table, positions, slots;
  explicit QkvInputs(const QkvAttrs& a) {
    size_t at = 4;
    if (a.has_bias) bias = at, at += 3;
    if (a.has_q_norm) q_norm = at++;
    if (a.has_k_norm) k_norm = at++;
    table = at++;
    positions = at++;
    slots = at;
  }
};

/// The way of a hidden state into attention, head by head: three products, bias, norm of the heads, rope on queries and
/// keys, keys and values into the cache. Made by passes/fuse_qkv.
///
/// inputs   x [tokens, in_features] f32; weights of q, k, v; their biases; norms of q and k [head_dim]; rope table
/// [tokens,
///          rotary_dim] f32; positions and slots [tokens] i32. What the attributes deny is left out
/// outputs  q [tokens, num_heads * head_dim] f32, and the value that stands for the cache (ops/kv_append.h)
extern const OpDef kQkv;

}  // namespace redline
