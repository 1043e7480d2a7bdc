// Cuts a graph into parts that run one after the other, on different devices.
#pragma once

#include <span>
#include <string_view>

#include "graph/graph.h"

namespace redline {

/// Splits the graph into parts that compute the same outputs when they run one after the other. Part i has ops [cuts[i
/// - 1], cuts[i]); `cuts` are ascending. A value that crosses a cut is an output of the part that computes it, and an
/// input, with the same name, of every later part that reads it. An input of the graph is an input of all parts that
/// read it. The outputs of the graph must be computed by the last part.
/// internal: an earlier part computes an output of the graph.
Result<std::vector<Graph>> split_graph(const Graph& graph, std::span<const size_t> cuts);

/// Returns the first number between dots in the name of an op, such as 3 in "model.layers.3.mlp.linear"; -1 if there is
/// none.
int64_t layer_of_op(std::string_view name);

/// Returns the index of the first op that belongs to layer `layer` or a later one, or the number of ops if there is
/// none.
size_t first_op_of_layer(const Graph& graph, int64_t layer);

}  // namespace redline
