// Group normalization of feature maps.
#pragma once

#include "graph/ops/feature_map.h"
#include "tensor/group_norm_parts.h"

namespace redline {

/// Maximum number of channels of a group_norm: back ends keep the sums of all channels of a row in scratch.
inline constexpr int64_t kGroupNormMaxChannels = 32768;

struct GroupNormAttrs {
  int64_t groups = 32;
  float eps = 1e-6f;
  bool silu = false;  ///< y = silu(norm): in convolutional networks the two always occur together
};

/// Group normalization (Wu and He 2018, arXiv:1803.08494) over the pixels of one item and the channels of one group,
/// then weight and bias per channel.
///
/// x             [batch * height * width, channels]  f32; groups divide channels
/// weight, bias  [channels]
/// returns like x; can be stored in the layouts that linear ops read
/// The function adds two ops. The first computes statistics of an item's pixels in up to 64 parts; the number of parts
/// depends only on the item's size, so results are bit-identical for any number of workers. The second merges the parts
/// in order and normalizes.
Value group_norm(GraphBuilder& g, const FeatureMap& x, const Dim& batch, Value weight, Value bias,
                 GroupNormAttrs attrs);

/// Attributes of both ops. Inputs of kGroupNorm: x, the statistics, weight, bias.
struct GroupNormOpAttrs {
  GroupNormAttrs norm;
  Dim batch, pixels;
};

/// Computes scale and shift of item `item`: its norm is x * scale[c] + shift[c]. `sums` holds the statistics of all
/// items.
void group_norm_scale(const float* sums, int64_t item, int64_t pixels, int64_t channels, const GroupNormAttrs& norm,
                      const float* weight, const float* bias, float* scale, float* shift);
struct HostTensor;
/// Computes y = norm(x) with statistics of x, for references.
void group_norm_reference(const HostTensor& x, int64_t batch, int64_t pixels, const GroupNormAttrs& norm,
                          const HostTensor& weight, const HostTensor& bias, HostTensor& y);

extern const OpDef kGroupNormSums;
extern const OpDef kGroupNorm;

}  // namespace redline
