// Which layers of a model run on a device that has too little memory for all of them.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "runtime/placement_speeds.h"

namespace redline {

/// What one layer takes.
struct LayerCost {
  int64_t bytes = 0;         ///< of weights and states, without the experts
  int64_t expert_bytes = 0;  ///< of all experts
  double expert_share = 0;   ///< of them, what one token reads
};
struct ModelCost {
  std::vector<LayerCost> layers;
  int64_t front_bytes = 0;  ///< of what comes before the layers, which is on the device if any of them is
  int64_t back_bytes = 0;   ///< of what comes behind, which is there if all of them are
};
/// `states`: the bytes of the caches of all layers, which are taken to be alike.
ModelCost model_cost(const Graph& graph, int64_t num_layers, int64_t states);

/// The device runs the first `layers` layers, and the experts of the first `expert_layers` of them.
struct LayerPlacement {
  int64_t layers = 0, expert_layers = 0;
  int64_t device_bytes = 0;
  double seconds = 0;  ///< of a step of one token, as the speeds have it
};
/// The fastest one whose bytes fit; of equals, the one with the fewest bytes. No layer: the device is of no use.
///
/// Where the experts of a layer are on the CPU, a step goes there and back. It pays when memory is short: a token reads
/// all of a layer's attention and few of its experts, so that the same memory saves more time with the former.
LayerPlacement place_layers(const ModelCost& model, const PlacementSpeeds& speeds, int64_t device_bytes);

}  // namespace redline
