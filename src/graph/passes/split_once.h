// What stays the same over the steps of a run, apart from what does not: text keys and values, modulation tables.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>

#include "graph/graph.h"

namespace redline {

struct SplitOnceOptions {
  std::string name;                 ///< of the graph that comes out, and within the names of its outputs
  std::set<std::string> constants;  ///< inputs, from outside, that stay the same
  SymbolValues sizes;               ///< by which memory is compared
  /// Outputs whose names begin so are only read by later graphs: not kept for anybody else.
  std::string private_prefix = "carry.";
};

struct SplitOnce {
  Graph once;  ///< no ops: nothing is worth keeping. Its outputs are named "bound.NAME.0", "bound.NAME.1", ..
  /// Outputs that the graphs had and that are outputs of `once` now, by their old names.
  std::map<std::string, std::string> moved_outputs;
};

/// Takes everything that depends on the constants alone out of `graphs` and puts it into one graph, whose outputs
/// become inputs of those that read them. `graphs` run one after the other: an input of one is the output of that name
/// of the latest before it, else comes from outside.
///
/// Kept are results of products, attention and norms, and what follows from them in no more memory; what a cheap op
/// makes wider, or makes of the constants themselves, is made anew in every step.
/// internal: the graphs are not as Graph::check wants them.
Result<SplitOnce> split_once(std::span<Graph* const> graphs, const SplitOnceOptions& options);

}  // namespace redline
