#pragma once

#include "graph/graph.h"
#include "tensor/activation.h"

namespace redline {

struct GatedLinearAttrs {
  bool has_bias = false;  ///< of each product
  Activation activation = Activation::kSilu;
};

/// y = f(linear(x, gate)) * linear(x, up): both products of a tile, the activation and the rounding for the next
/// product in one task, so that the two intermediates never leave the cache. Made by passes/fuse_gated_linear.
///
/// inputs  x [rows, in_features] f32, gate and up [features, in_features], then the biases of gate and up [features]
/// returns [rows, features] f32
extern const OpDef kGatedLinear;

/// y = f(linear(x, weight)), the same without a second matrix: x, weight, then its bias.
extern const OpDef kActivatedLinear;

}  // namespace redline
