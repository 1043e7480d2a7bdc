// Blocks shared by the convolutional networks: autoencoders and UNets with diffusers' tensor names.
#pragma once

#include <string>

#include "graph/ops/conv2d.h"
#include "models/weight_reader.h"

namespace redline {

class ConvBlocks {
 public:
  /// `groups` and `eps` of every norm. Both references outlive the object.
  ConvBlocks(GraphBuilder& g, WeightReader& w, int64_t groups, float eps) : g_(g), w_(w), groups_(groups), eps_(eps) {}

  int64_t channels(const FeatureMap& x) const;
  /// A convolution with NAME.weight and NAME.bias; the output has the size of x.
  FeatureMap conv(FeatureMap x, const std::string& name, int64_t out, int64_t kernel = 3);
  /// The same with stride 2 (`pad_before` 0 for autoencoders, 1 for UNets) to height x width.
  FeatureMap downsample(FeatureMap x, const std::string& name, int64_t pad_before, Dim height, Dim width);
  /// Nearest-neighbour upsampling, then a convolution.
  FeatureMap upsample(FeatureMap x, const std::string& name, Dim height, Dim width);
  /// Group norm, optionally followed by silu.
  FeatureMap norm(FeatureMap x, const std::string& name, bool silu);
  /// x (projected where the number of channels changes) + conv2(silu(norm2(conv1(silu(norm1(x))) + time))), the
  /// residual block of He et al. 2016 (arXiv:1512.03385) as diffusers' ResnetBlock2D has it. `time` [batch,
  /// time_width], optional, is the time embedding after its silu; NAME.time_emb_proj projects it.
  FeatureMap resnet(FeatureMap x, const std::string& name, int64_t out, Value time = {}, int64_t time_width = 0);
  /// Linear with NAME.weight, [out, in] or [out, in, 1, 1], and NAME.bias if `bias`.
  Value project(Value x, const std::string& name, int64_t out, bool bias = true);

  const Dim batch = Symbol::kBatch;

 private:
  GraphBuilder& g_;
  WeightReader& w_;
  int64_t groups_;
  float eps_;
};

}  // namespace redline
