// Low-rank adapters (LoRA: Hu et al. 2021, arXiv:2106.09685) on the linear and conv2d ops of a compiled program. They
// are swapped between steps without recompiling and work with any weight type.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace redline {

/// One adapter's contribution to one op: y += scale * (x down^T) up^T. For a conv2d, `down` has the same kernel, stride
/// and padding as the op, and `up` is a 1x1 convolution.
struct AdapterPart {
  int64_t rank = 0;
  const void* down = nullptr;  ///< AdapterSlot::down_shape packed as its down_type (tensor/packed_weight.h)
  const void* up = nullptr;    ///< [out_features, rank] packed as its up_type
  float scale = 1;
  /// The same matrices, row-major float32, for the interpreter.
  const float* plain_down = nullptr;
  const float* plain_up = nullptr;
};

/// The adapters applied to one op in each step. Parts change only between steps; the caller that sets them owns their
/// memory.
struct AdapterSlot {
  std::string weight;                                    ///< name of the weight matrix it applies to
  int64_t out_features = 0, in_features = 0;             ///< of a convolution: channels * kernel * kernel
  int64_t kernel = 1;                                    ///< of a convolution
  DType down_type = DType::kF32, up_type = DType::kF32;  ///< set when the program is compiled
  int64_t max_rank = 0;                                  ///< sum over all parts
  std::function<int64_t(int64_t)> source_row;  ///< row order of the base weight (WeightSource); rows of `up` follow it
  std::vector<AdapterPart> parts;

  std::vector<int64_t> down_shape(int64_t rank) const {
    if (kernel == 1) return {rank, in_features};
    return {rank, in_features / (kernel * kernel), kernel, kernel};
  }
};
using AdapterSlots = std::vector<std::shared_ptr<AdapterSlot>>;

/// Adds a low_rank op to every linear whose weight `wanted` accepts, and an adapter slot to every such conv2d. Runs
/// before the fusing passes. Slots are in graph order.
AdapterSlots add_adapter_slots(Graph& graph, int64_t max_rank, const std::function<bool(const std::string&)>& wanted);

}  // namespace redline
