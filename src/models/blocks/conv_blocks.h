// Blocks of the convolutional networks: autoencoders and UNets with diffusers' tensor names.
#pragma once

#include <string>

#include "graph/ops/conv2d.h"
#include "models/checkpoint/weight_reader.h"

namespace redline {

class ConvBlocks {
 public:
  /// `groups` and `eps` are those of every norm. `g` and `w` must outlive the object.
  ConvBlocks(GraphBuilder& g, WeightReader& w, int64_t groups, float eps) : g_(g), w_(w), groups_(groups), eps_(eps) {}

  int64_t channels(const FeatureMap& x) const;
  /// Adds a convolution with NAME.weight and NAME.bias, whose output has the size of x.
  FeatureMap conv(FeatureMap x, const std::string& name, int64_t out, int64_t kernel = 3);
  /// Adds a convolution with stride 2 and an output of height x width. `pad_before` is 0 for autoencoders, 1 for UNets.
  FeatureMap downsample(FeatureMap x, const std::string& name, int64_t pad_before, Dim height, Dim width);
  /// Adds nearest-neighbour upsampling, then a convolution.
  FeatureMap upsample(FeatureMap x, const std::string& name, Dim height, Dim width);
  /// Adds a group norm, optionally followed by silu.
  FeatureMap norm(FeatureMap x, const std::string& name, bool silu);
  /// Adds the residual block of He et al. 2016 (arXiv:1512.03385) in the form of diffusers' ResnetBlock2D: x (projected
  /// if the number of channels changes) + conv2(silu(norm2(conv1(silu(norm1(x))) + time))). `time` [batch, time_width],
  /// optional, is the time embedding after its silu; NAME.time_emb_proj projects it.
  FeatureMap resnet(FeatureMap x, const std::string& name, int64_t out, Value time = {}, int64_t time_width = 0);
  /// Adds a linear op with NAME.weight, [out, in] or [out, in, 1, 1], and NAME.bias if `bias`.
  Value project(Value x, const std::string& name, int64_t out, bool bias = true);

  const Dim batch = Symbol::kBatch;

 private:
  GraphBuilder& g_;
  WeightReader& w_;
  int64_t groups_;
  float eps_;
};

}  // namespace redline
