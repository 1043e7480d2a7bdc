// Low-rank adapters (LoRA: Hu et al. 2021, arXiv:2106.09685) beside the products of a compiled program: swapped between
// steps without compiling anything, over weights of any type.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace redline {

/// One adapter's share of one product: y += scale * (x down^T) up^T.
struct AdapterPart {
  int64_t rank = 0;
  const void* down = nullptr;  ///< [rank, in_features] packed as the slot's down_type (tensor/packed_weight.h)
  const void* up = nullptr;    ///< [out_features, rank] packed as its up_type
  float scale = 1;
  /// The same row-major in float32: what the interpreter reads.
  const float* plain_down = nullptr;
  const float* plain_up = nullptr;
};

/// What a product looks at in each step. Parts change only while no step runs; their memory belongs to who set them.
struct AdapterSlot {
  std::string weight;  ///< name of the matrix that it stands beside
  int64_t out_features = 0, in_features = 0;
  DType down_type = DType::kF32, up_type = DType::kF32;  ///< set when the program is compiled
  int64_t max_rank = 0;                                  ///< of all parts together
  std::function<int64_t(int64_t)> source_row;            ///< the matrix's own (WeightSource): rows of `up` follow it
  std::vector<AdapterPart> parts;
};
using AdapterSlots = std::vector<std::shared_ptr<AdapterSlot>>;

/// Puts a low_rank beside every linear whose weight `wanted` accepts: before the passes that fuse. The slots are in the
/// order of the graph.
AdapterSlots add_adapter_slots(Graph& graph, int64_t max_rank, const std::function<bool(const std::string&)>& wanted);

}  // namespace redline
