// Two linear ops and a gated activation as one op.
#pragma once

#include <array>

#include "graph/adapters.h"
#include "tensor/activation.h"

namespace redline {

struct GatedLinearAttrs {
  bool has_bias = false;  ///< both linears have a bias
  Activation activation = Activation::kSilu;
  /// Adapters of gate and up, which are added before the activation. nullptr: no site. The matrix may be a part of the
  /// site's matrix, from row first_feature on.
  struct Adapters {
    std::shared_ptr<AdapterSite> site;
    int64_t first_feature = 0;
  };
  std::array<Adapters, 2> adapters;
};

/// y = f(linear(x, gate)) * linear(x, up). One task computes both matmuls of a tile, the activation and the
/// quantization for the next linear, so the two intermediates stay in cache. Made by passes/fuse_gated_linear.
///
/// inputs  x [rows, in_features] f32, gate and up [features, in_features], then the biases of gate and up [features]
/// returns [rows, features] f32
extern const OpDef kGatedLinear;

/// y = f(linear(x, weight)) with a single matrix. Inputs: x, weight, optional bias.
extern const OpDef kActivatedLinear;

}  // namespace redline
