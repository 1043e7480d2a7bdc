#pragma once

#include "graph/graph.h"

namespace redline {

/// A batch of pictures as rows: pixel (i, y, x) of item i is row (i * height + y) * width + x; columns are channels (NHWC).
struct Picture {
  Value value;  ///< [batch * height * width, channels]  f32
  Dim height, width;
};

struct Conv2dAttrs {
  int64_t kernel = 3;  ///< height and width
  int64_t stride = 1;
  /// Zeros around the picture. Output sizes are (in + before + after - kernel) / stride + 1, rounded down.
  int64_t pad_before = 1, pad_after = 1;
  bool upsample = false;  ///< the input is first brought to the output's size by nearest neighbour (stride 1)
};

/// y[i, y, x, n] = sum_{dy, dx, c} x[i, stride y + dy - pad, stride x + dx - pad, c] * weight[n, c, dy, dx] + bias[n]
///
/// weight  [out_channels, in_channels, kernel, kernel]  as checkpoints store it
/// bias    [out_channels], optional
/// height, width: of the output; the sizes above, or with `upsample` whatever the result should have
/// Runs as products over patches: the weight becomes [out_channels, kernel * kernel * in_channels].
Picture conv2d(GraphBuilder& g, Picture x, Dim batch, Value weight, Value bias, Dim height, Dim width,
               Conv2dAttrs attrs = {});

extern const OpDef kConv2d;

}  // namespace redline
