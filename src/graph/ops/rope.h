#pragma once

#include "graph/graph.h"
#include "graph/reference.h"

namespace redline {

/// Rotary position embedding (Su et al. 2021, arXiv:2104.09864) as two ops: the table of a step, shared by all layers,
/// and the rotation.
struct RopeTableAttrs {
  std::vector<float> inverse_frequencies;  ///< [rotary_dim / 2], radians per position
  float attention_factor = 1.0f;           ///< multiplies cosines and sines (yarn)
  /// Dynamic NTK scaling: for a text longer than `original_context` the base grows with the text's length L to
  ///   base * (factor * L / original_context - (factor - 1)) ^ (rotary_dim / (rotary_dim - 2)).
  struct Dynamic {
    double base = 10000, factor = 1;
    int64_t original_context = 0;  ///< 0: off
  } dynamic;
};

/// Cosines and sines of position * inverse frequency; the product is rounded to float32 as PyTorch implementations do,
/// the functions are exact.
///
/// positions  [tokens]  i32
/// lengths    [tokens]  i32, length that the token's text is known to reach; looked at only by dynamic scaling
/// returns    [tokens, rotary_dim]  f32: cosines, then sines
Value rope_table(GraphBuilder& g, Value positions, Value lengths, RopeTableAttrs attrs);

struct RopeAttrs {
  int64_t head_dim = 0;
};

/// Rotates the pairs (i, i + rotary_dim/2) of every head; elements from rotary_dim on stay.
///
/// x      [tokens, heads * head_dim]  f32
/// table  [tokens, rotary_dim]        from rope_table; rotary_dim even and at most head_dim
/// returns like x
Value rope(GraphBuilder& g, Value x, Value table, RopeAttrs attrs);

/// y = rope(x) in float64.
void rope_reference(const HostTensor& x, const HostTensor& table, int64_t head_dim, HostTensor& y);

extern const OpDef kRopeTable;
extern const OpDef kRope;

}  // namespace redline
