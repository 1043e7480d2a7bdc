// How fast a device and the CPU run the products of a model, for the choice of what runs where.
#pragma once

#include <vector>

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

/// Of the layers, the largest matrix and others that a product can read after it, of its type: until they take
/// `wanted_bytes`, or all. Empty: there is none.
std::vector<const ValueInfo*> matrices_to_time(const Graph& graph, int64_t wanted_bytes);

/// Times the products of one row with matrices like the largest of the layers, of as many as exceed all caches, and a
/// program that does next to nothing, on both sides.
Result<PlacementSpeeds> measure_placement_speeds(const Graph& graph, const DeviceChoice& device,
                                                 RuntimeResources& runtime);

}  // namespace redline
