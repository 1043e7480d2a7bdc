// Two-dimensional convolution of feature maps.
#pragma once

#include "graph/ops/convolution.h"
#include "graph/ops/feature_map.h"

namespace redline {

struct Conv2dAttrs {
  int64_t kernel = 3;  ///< height and width
  int64_t stride = 1;
  /// Zero padding. Output sizes are floor((in + before + after - kernel) / stride) + 1.
  int64_t pad_before = 1, pad_after = 1;
  bool upsample = false;  ///< resizes the input to the output's size first, by nearest neighbour (stride 1)
};

/// Adds a convolution (graph/ops/convolution.h) of two axes with equal attributes:
///   y[i, y, x, n] = sum_{dy, dx, c} x[i, stride y + dy - pad, stride x + dx - pad, c] * weight[n, c, dy, dx] + bias[n]
///                   (+ item_bias[i, n])
///
/// weight     [out_channels, in_channels, kernel, kernel], in the order of checkpoints
/// bias       [out_channels], optional
/// item_bias  [batch, out_channels]  f32, optional: the time embedding added to each item
/// height, width  size of the output: as given by the formula of Conv2dAttrs, or any size with `upsample`
/// A kernel of 1 with stride 1 is `linear`.
FeatureMap conv2d(GraphBuilder& g, const FeatureMap& x, const Dim& batch, Value weight, Value bias, const Dim& height,
                  const Dim& width, Conv2dAttrs attrs = {}, Value item_bias = {});

}  // namespace redline
