// A batch of two-dimensional feature maps as one graph value.
#pragma once

#include "graph/graph.h"

namespace redline {

/// A batch of feature maps stored as rows: pixel (i, y, x) of item i is row (i * height + y) * width + x; columns are
/// channels (NHWC).
struct FeatureMap {
  Value value;  ///< [batch * height * width, channels]  f32
  Dim height, width;
};

}  // namespace redline
