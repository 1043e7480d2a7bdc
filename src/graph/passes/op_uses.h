// Producers and readers of values, for fusing passes.
#pragma once

#include <algorithm>

#include "graph/graph.h"

namespace redline {

/// Producers and readers as they were at construction; values that a pass adds later are unknown. Ops must not move
/// while it is in use.
class OpUses {
 public:
  explicit OpUses(Graph& graph) : graph_(graph), readers_(graph.readers()), producer_(graph.values.size(), nullptr) {
    for (Op& op : graph.ops)
      for (ValueId id : op.outputs) producer_[static_cast<size_t>(id)] = &op;
  }
  /// Returns the op of kind `def` that produces input i of `op`, if `op` is its only reader and the value is not a
  /// graph output; otherwise nullptr.
  Op* only_read_by(const Op& op, size_t i, const OpDef& def) const {
    const ValueId id = op.inputs[i];
    Op* producer = producer_[static_cast<size_t>(id)];
    const bool is_output = std::find(graph_.outputs.begin(), graph_.outputs.end(), id) != graph_.outputs.end();
    return producer && producer->def == &def && readers_[static_cast<size_t>(id)].size() == 1 && !is_output ? producer
                                                                                                            : nullptr;
  }
  /// Returns the only op that reads the value; nullptr if there is none, there are several, or the value is a graph
  /// output.
  Op* only_reader(ValueId id) const {
    const auto& list = readers_[static_cast<size_t>(id)];
    const bool is_output = std::find(graph_.outputs.begin(), graph_.outputs.end(), id) != graph_.outputs.end();
    return list.size() == 1 && !is_output ? &graph_.ops[static_cast<size_t>(list[0])] : nullptr;
  }

 private:
  Graph& graph_;
  std::vector<std::vector<int>> readers_;
  std::vector<Op*> producer_;
};

}  // namespace redline
