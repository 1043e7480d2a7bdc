// Two-dimensional convolution of feature maps.
#pragma once

#include "graph/adapters.h"
#include "graph/ops/feature_map.h"
#include "graph/ops/group_norm.h"

namespace redline {

struct Conv2dAttrs {
  int64_t kernel = 3;  ///< height and width
  int64_t stride = 1;
  /// Zero padding. Output sizes are floor((in + before + after - kernel) / stride) + 1.
  int64_t pad_before = 1, pad_after = 1;
  bool upsample = false;  ///< resizes the input to the output's size first, by nearest neighbour (stride 1)
};

/// y[i, y, x, n] = sum_{dy, dx, c} x[i, stride y + dy - pad, stride x + dx - pad, c] * weight[n, c, dy, dx] + bias[n]
///                 (+ item_bias[i, n])
///
/// weight     [out_channels, in_channels, kernel, kernel]  of a plain type, in the order of checkpoints
/// bias       [out_channels], optional
/// item_bias  [batch, out_channels]  f32, optional: the time embedding added to each item
/// height, width  size of the output: as given by the formula of Conv2dAttrs, or any size with `upsample`
/// The weight is packed as [out_channels, kernel * kernel * in_channels]. A backend multiplies im2col patches with the
/// kernels and activation layouts of `linear`, or regions of the feature map directly (kernels/cpu/conv2d.h). A kernel
/// of 1 with stride 1 is `linear`.
FeatureMap conv2d(GraphBuilder& g, const FeatureMap& x, const Dim& batch, Value weight, Value bias, const Dim& height,
                  const Dim& width, Conv2dAttrs attrs = {}, Value item_bias = {});

/// Attributes of kConv2d. Inputs: x, weight, then the optional inputs whose `has_` flag is set, in this order.
struct Conv2dOpAttrs : Conv2dAttrs {
  Dim batch, in_height, in_width, out_height, out_width;
  bool has_bias = false, has_item_bias = false;
  /// The last input, of the output's shape, is added to the output; set by passes/fuse_residual.
  bool has_residual = false;
  /// If true, x is group-normalized first. The op then has three more inputs: the statistics of x, the norm's weight
  /// and its bias. Set by passes/fuse_group_norm.
  bool has_norm = false;
  GroupNormAttrs norm;
  std::shared_ptr<AdapterSite> adapters;  ///< added to the output; nullptr: the op has no site
};

/// Sizes of a convolution in one step.
struct Conv2dGeometry {
  int64_t batch, in_height, in_width, out_height, out_width;

  Conv2dGeometry(const Conv2dOpAttrs& a, const SymbolValues& sizes)
      : batch(a.batch.eval(sizes)), in_height(a.in_height.eval(sizes)), in_width(a.in_width.eval(sizes)),
        out_height(a.out_height.eval(sizes)), out_width(a.out_width.eval(sizes)) {}
  int64_t pixels() const { return out_height * out_width; }
  int64_t in_pixels() const { return in_height * in_width; }
};

/// Indices of the optional inputs; 0: absent.
struct Conv2dInputs {
  size_t bias = 0, item_bias = 0, residual = 0;
  size_t norm = 0;  ///< index of the statistics; weight and bias of the norm follow

  explicit Conv2dInputs(const Conv2dOpAttrs& a) {
    size_t next = 2;
    if (a.has_bias) bias = next++;
    if (a.has_item_bias) item_bias = next++;
    if (a.has_residual) residual = next++;
    if (a.has_norm) norm = next;
  }
};

extern const OpDef kConv2d;

}  // namespace redline
