// Sum of the partial results of ranks.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "graph/graph.h"
#include "ranks/rank_group.h"

namespace redline {

struct AllReduceAttrs {
  int64_t ranks = 1;
  /// The ranks that compute the other partial results; nullptr: the graph computes those of all ranks.
  std::shared_ptr<RankGroup> group = nullptr;
  std::string exchange = {};  ///< name of the op's exchange in `group`, different for each op of a graph
  bool has_after = false;     ///< the last input is the result of the previous all_reduce
};

/// y = ((p0 + p1) + p2) + ..., elementwise, in float32 and in the order of ranks, so that all ranks get the same bits,
/// whatever the number of threads. With a group, p_r is the value of rank r in this step.
///
/// parts    [rows, cols]  f32: with a group the part of this rank, without one the parts of all ranks
/// after    [rows, cols]  f32, optional: the result of another all_reduce, which is complete before this one begins.
///          All ranks must begin the sums of a graph in one order, so a sum that depends on no earlier sum needs it
/// returns  like a part; with one rank the part itself, without an op
Value all_reduce(GraphBuilder& g, std::span<const Value> parts, AllReduceAttrs attrs, Value after = {});

/// Returns the bytes that a rank reads from other ranks in one step, for an op with a group: the bytes of the result
/// times the number of other ranks.
Dim all_reduce_bytes(const Graph& graph, const Op& op);

extern const OpDef kAllReduce;

}  // namespace redline
