// Measures how fast a device and the CPU run the products of a model, to choose which layers run where.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "runtime/device.h"
#include "runtime/speeds.h"

namespace redline {

class RuntimeResources;

/// Returns the largest weight matrix of the layers and further matrices of the same type and width, up to
/// `wanted_bytes` in total. Empty if the layers have no matrix.
std::vector<const ValueInfo*> matrices_to_time(const Graph& graph, int64_t wanted_bytes);

/// Times two programs on both sides: products of one row with as many large matrices of the layers as exceed all
/// caches, and a program with almost no work.
Result<PlacementSpeeds> measure_placement_speeds(const Graph& graph, const DeviceChoice& device,
                                                 RuntimeResources& runtime);

}  // namespace redline
