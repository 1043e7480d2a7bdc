// Cuts a graph in two, for parts that run on different devices.
#pragma once

#include "graph/graph.h"

namespace redline {

/// What `front` and then `back` compute is what the graph did. Values that cross are outputs of the front and inputs of
/// the back, with the same names; an input that both read is an input of both.
struct SplitGraph {
  Graph front, back;
  std::vector<std::string> crossing;
};

/// The front has ops [0, first_of_back). Outputs of the graph are made by the back.
/// internal: an output is not.
Result<SplitGraph> split_graph(const Graph& graph, size_t first_of_back);

/// The first op that belongs to layer `layer` or a later one; the number of ops: there is none. The layer of an op is
/// the first number between dots in its name, as of "model.layers.3.mlp.linear".
size_t first_op_of_layer(const Graph& graph, int64_t layer);

}  // namespace redline
