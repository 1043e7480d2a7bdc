#pragma once

#include "graph/graph.h"

namespace redline {

struct GatedLinearAttrs {
  bool has_bias = false;  ///< of both products
};

/// y = silu(linear(x, gate)) * linear(x, up): both products of a tile, the activation and the rounding for the next product
/// in one task, so that the two intermediates never leave the cache. Made by passes/fuse_gated_linear.
///
/// inputs  x [rows, in_features] f32, gate and up [features, in_features], then the biases of gate and up [features]
/// returns [rows, features] f32
extern const OpDef kGatedLinear;

}  // namespace redline
