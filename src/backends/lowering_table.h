// A table that finds the lowering of an op in one back end.
#pragma once

#include <initializer_list>
#include <map>
#include <span>

#include "graph/graph.h"

namespace redline {

template <class Lowering>
class LoweringTable {
 public:
  LoweringTable(std::initializer_list<std::span<const Lowering>> files) {
    for (const std::span<const Lowering>& file : files)
      for (const Lowering& lowering : file) by_op_[lowering.op] = &lowering;
  }
  /// Returns nullptr if the op has no lowering.
  const Lowering* find(const OpDef* op) const {
    const auto found = by_op_.find(op);
    return found == by_op_.end() ? nullptr : found->second;
  }

 private:
  std::map<const OpDef*, const Lowering*> by_op_;
};

}  // namespace redline
