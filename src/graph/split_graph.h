// Cuts a graph into parts that run one after the other, on different devices.
#pragma once

#include <span>
#include <string_view>

#include "graph/graph.h"

namespace redline {

/// What the parts compute one after the other is what the graph did. Part i has ops [cuts[i - 1], cuts[i]); `cuts` are
/// in order. A value that crosses is an output of the part that makes it, and an input of every later one that reads
/// it, with the same name; an input of the graph is an input of all parts that read it. Outputs of the graph are made
/// by the last part.
/// internal: an output is not.
Result<std::vector<Graph>> split_graph(const Graph& graph, std::span<const size_t> cuts);

/// The first number between dots in the name of an op, as of "model.layers.3.mlp.linear"; -1: there is none.
int64_t layer_of_op(std::string_view name);

/// The first op that belongs to layer `layer` or a later one; the number of ops: there is none.
size_t first_op_of_layer(const Graph& graph, int64_t layer);

}  // namespace redline
