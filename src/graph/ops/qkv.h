// Q, K and V projections with norms, rope and cache append as one op.
#pragma once

#include <array>

#include "graph/adapters.h"

namespace redline {

struct QkvAttrs {
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  bool has_bias = false;    ///< all three projections have a bias
  bool has_q_norm = false;  ///< RMS norm of each query head before rope
  bool has_k_norm = false;  ///< RMS norm of each key head before rope
  float q_norm_eps = 0, k_norm_eps = 0;
  /// Adapters of q, k and v, applied before norm and rope; nullptr: no site.
  std::array<std::shared_ptr<AdapterSite>, 3> adapters;
};
/// Indices of the optional inputs of kQkv; 0 for absent ones.
struct QkvInputs {
  size_t bias = 0, q_norm = 0, k_norm = 0, table, cache;
  explicit QkvInputs(const QkvAttrs& a) {
    size_t at = 4;
    if (a.has_bias) bias = at, at += 3;
    if (a.has_q_norm) q_norm = at++;
    if (a.has_k_norm) k_norm = at++;
    table = at++;
    cache = at;
  }
};

/// Fused attention input, head by head: Q, K and V projections, bias, head norms, rope on queries and keys, and the
/// append of keys and values to the cache. Made by passes/fuse_qkv.
///
/// inputs   x [tokens, in_features] f32; weights of q, k, v; their biases; norms of q and k [head_dim]; rope table
///          [tokens, rotary_dim] f32; the cache. Inputs that the attributes disable are absent
/// outputs  q [tokens, num_heads * head_dim] f32, and the value that represents the cache (ops/kv_append.h)
extern const OpDef kQkv;

}  // namespace redline
