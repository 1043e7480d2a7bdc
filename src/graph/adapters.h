// Low-rank adapters (LoRA: Hu et al. 2021, arXiv:2106.09685) beside the products of a compiled program: swapped between
// steps without compiling anything, over weights of any type.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace redline {

/// One adapter's share of one product: y += scale * (x down^T) up^T. Beside a convolution, `down` is one of the same
/// kernel, stride and zeros, and `up` one of a single pixel.
struct AdapterPart {
  int64_t rank = 0;
  const void* down = nullptr;  ///< AdapterSlot::down_shape packed as its down_type (tensor/packed_weight.h)
  const void* up = nullptr;    ///< [out_features, rank] packed as its up_type
  float scale = 1;
  /// The same row-major in float32: what the interpreter reads.
  const float* plain_down = nullptr;
  const float* plain_up = nullptr;
};

/// What a product looks at in each step. Parts change only while no step runs; their memory belongs to who set them.
struct AdapterSlot {
  std::string weight;                                    ///< name of the matrix that it stands beside
  int64_t out_features = 0, in_features = 0;             ///< of a convolution: channels * kernel * kernel
  int64_t kernel = 1;                                    ///< of a convolution
  DType down_type = DType::kF32, up_type = DType::kF32;  ///< set when the program is compiled
  int64_t max_rank = 0;                                  ///< of all parts together
  std::function<int64_t(int64_t)> source_row;            ///< the matrix's own (WeightSource): rows of `up` follow it
  std::vector<AdapterPart> parts;

  std::vector<int64_t> down_shape(int64_t rank) const {
    if (kernel == 1) return {rank, in_features};
    return {rank, in_features / (kernel * kernel), kernel, kernel};
  }
};
using AdapterSlots = std::vector<std::shared_ptr<AdapterSlot>>;

/// Puts a low_rank beside every linear whose weight `wanted` accepts, and gives every such conv2d a slot to look at:
/// before the passes that fuse. The slots are in the order of the graph.
AdapterSlots add_adapter_slots(Graph& graph, int64_t max_rank, const std::function<bool(const std::string&)>& wanted);

}  // namespace redline
