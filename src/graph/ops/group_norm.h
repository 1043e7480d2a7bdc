#pragma once

#include "graph/graph.h"
#include "graph/ops/conv2d.h"

namespace redline {

struct GroupNormAttrs {
  int64_t groups = 32;
  float eps = 1e-6f;
  bool silu = false;  ///< y = silu(norm): the two always stand together in convolutional networks
};

/// Group normalization (Wu and He 2018, arXiv:1803.08494) over the pixels of one item and the channels of one group, then
/// weight and bias by channel.
///
/// x             [batch * height * width, channels]  f32
/// weight, bias  [channels]
/// returns like x
Value group_norm(GraphBuilder& g, Picture x, Dim batch, Value weight, Value bias, GroupNormAttrs attrs);

extern const OpDef kGroupNorm;

}  // namespace redline
