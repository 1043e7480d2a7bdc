// How fast a device and the CPU run the products of a model, for the choice of what runs where.
#pragma once

#include "graph/graph.h"
#include "runtime/device.h"

namespace redline {

class RuntimeResources;

/// Measured: bytes of weights that the products of one row read in a second, and what a program takes besides.
struct PlacementSpeed {
  double bytes_per_second = 0, step_seconds = 0;
};
struct PlacementSpeeds {
  PlacementSpeed device, cpu;
};

/// Times the product of one row with the largest matrix of the layers, and a program that does next to nothing, on both
/// sides.
Result<PlacementSpeeds> measure_placement_speeds(const Graph& graph, const DeviceChoice& device,
                                                 RuntimeResources& runtime);

}  // namespace redline
