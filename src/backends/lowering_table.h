// The lowerings of a back end, by op.
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
  /// nullptr: the op has none.
  const Lowering* find(const OpDef* op) const {
    const auto found = by_op_.find(op);
    return found == by_op_.end() ? nullptr : found->second;
  }

 private:
  std::map<const OpDef*, const Lowering*> by_op_;
};

}  // namespace redline
