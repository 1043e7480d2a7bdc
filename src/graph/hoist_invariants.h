// Hoists step invariants: the parts of denoiser graphs that stay constant over the steps of a run, such as text keys
// and values and modulation tables.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>

#include "graph/graph.h"

namespace redline {

struct HoistOptions {
  std::string name;                 ///< name of the resulting graph; also part of the names of its outputs
  std::set<std::string> constants;  ///< external inputs that stay constant over the steps
  SymbolValues sizes;               ///< sizes used to compare memory
  /// Outputs with this name prefix are read only by later graphs, so they need not be kept for the caller.
  std::string private_prefix = "carry.";
};

struct HoistedGraphs {
  Graph once;  ///< has no ops if nothing is worth storing. Outputs are named "external.NAME.0", "external.NAME.1", ..
  /// Outputs of the given graphs that are now outputs of `once`: old name to new name.
  std::map<std::string, std::string> moved_outputs;
};

/// Moves everything that depends only on the constants out of `graphs` into one graph, whose outputs become inputs of
/// the ops that read them. `graphs` run one after the other: an input of one is the output of that name of the latest
/// earlier graph, or else external.
///
/// The graph `once` stores results of matmuls, attention and norms, and values derived from them that take no more
/// memory. Values that a cheap op widens, or computes from the constants directly, are recomputed in every step.
/// internal: the graphs fail Graph::check.
Result<HoistedGraphs> hoist_invariants(std::span<Graph* const> graphs, const HoistOptions& options);

}  // namespace redline
