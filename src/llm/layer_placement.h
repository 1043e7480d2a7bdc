// Chooses the layers that run on a device whose memory is too small for the whole model.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "runtime/speeds.h"

namespace redline {

/// Memory of one layer, and the share of it that a token reads.
struct LayerCost {
  int64_t bytes = 0;         ///< bytes of weights and states, without the experts
  int64_t expert_bytes = 0;  ///< bytes of all experts
  double expert_share = 0;   ///< share of the experts that one token reads
};
struct ModelCost {
  std::vector<LayerCost> layers;
  int64_t front_bytes = 0;  ///< bytes of weights before the layers; on the device if any layer is
  int64_t back_bytes = 0;   ///< bytes of weights after the layers; on the device if all layers are
};
/// Returns the costs of a graph's layers. `states`: bytes of the caches of all layers, which are divided equally.
ModelCost model_cost(const Graph& graph, int64_t num_layers, int64_t states);

/// The device runs the first `layers` layers, and the experts of the first `expert_layers` of them.
struct LayerPlacement {
  int64_t layers = 0, expert_layers = 0;
  int64_t device_bytes = 0;
  double seconds = 0;  ///< estimated time of a step of one token
};
/// Returns the fastest placement whose bytes fit; of equally fast ones, the one with the fewest bytes. It has no layers
/// if the CPU alone is fastest.
///
/// A layer may be on the device while its experts are on the CPU. A step then copies activations to the CPU and back.
/// This pays if memory is short: a token reads all attention weights of a layer but few of its experts, so the same
/// amount of device memory saves more time if it holds attention weights.
LayerPlacement place_layers(const ModelCost& model, const PlacementSpeeds& speeds, int64_t device_bytes);

}  // namespace redline
