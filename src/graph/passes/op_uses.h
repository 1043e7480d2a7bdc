// Who makes a value and who reads it: what fusing passes ask.
#pragma once

#include <algorithm>

#include "graph/graph.h"

namespace redline {

/// A snapshot; ids of values that a pass adds later are not known to it. Ops must not move while it is asked.
class OpUses {
 public:
  explicit OpUses(Graph& graph) : graph_(graph), readers_(graph.readers()), producer_(graph.values.size(), nullptr) {
    for (Op& op : graph.ops)
      for (ValueId id : op.outputs) producer_[static_cast<size_t>(id)] = &op;
  }
  /// The op of kind `def` that makes input i of `op`, when nobody else reads what it makes and it is no output of the
  /// graph; nullptr otherwise.
  Op* only_read_by(const Op& op, size_t i, const OpDef& def) const {
    const ValueId id = op.inputs[i];
    Op* producer = producer_[static_cast<size_t>(id)];
    const bool is_output = std::find(graph_.outputs.begin(), graph_.outputs.end(), id) != graph_.outputs.end();
    return producer && producer->def == &def && readers_[static_cast<size_t>(id)].size() == 1 && !is_output ? producer
                                                                                                            : nullptr;
  }
  /// nullptr: none, or several, or the graph's user.
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
