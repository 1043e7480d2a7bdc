#include "graph/ops/conv2d.h"

namespace redline {

FeatureMap conv2d(GraphBuilder& g, const FeatureMap& x, const Dim& batch, Value weight, Value bias, const Dim& height,
                  const Dim& width, Conv2dAttrs attrs, Value item_bias) {
  const ConvAxis axis = {
      .kernel = attrs.kernel, .stride = attrs.stride, .pad_before = attrs.pad_before, .pad_after = attrs.pad_after};
  const FeatureGrid y =
      convolution(g, {x.value, {x.height, x.width}}, batch, weight, {.axes = {axis, axis}, .upsample = attrs.upsample},
                  {.bias = bias, .item_bias = item_bias}, {height, width});
  return {y.value, height, width};
}

}  // namespace redline
