// RMS norm with a gate, as state-space models and gated delta networks use it.
#pragma once

#include "graph/graph.h"

namespace redline {

struct GatedNormAttrs {
  int64_t group = 0;  ///< elements that are normalized together
  float eps = 1e-5f;
  bool gates_first = false;
};

/// RMS norm of each group of elements of a row, with a gate:
///   y = weight norm(x silu(gate))     gates_first: Mamba-2
///   y = weight norm(x) silu(gate)     gated delta networks
///
/// x, gate  [rows, cols]           f32
/// weight   [a multiple of group]  repeated along a row
/// returns  like x
Value gated_norm(GraphBuilder& g, Value x, Value gate, Value weight, GatedNormAttrs attrs);

/// y = x / (1 + e^-gate), both f32 [rows, cols].
Value sigmoid_mul(GraphBuilder& g, Value x, Value gate);

extern const OpDef kGatedNorm, kSigmoidMul;

}  // namespace redline
