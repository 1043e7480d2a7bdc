// Rewrites of a graph. Each has its own file in passes/, and a test that compares its result with the unfused ops.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "graph/target.h"

namespace redline {

/// Phases run in this order. Passes of one phase give the same graph in any order.
enum class PassPhase : uint8_t {
  kCleanUp,
  kFusion,        ///< runs on every machine
  kTargetFusion,  ///< depends on the properties of the Target
  kLayout,        ///< chooses layouts of activations, once all readers of a value are known
};

/// One constant per file, which the build finds: passes/fuse_qkv.cc defines kFuseQkv.
struct GraphPass {
  std::string_view name;
  PassPhase phase;
  // Exactly one of the two is set. Passes of the phases from kTargetFusion on have `rewrite_for`.
  Status (*rewrite)(Graph& graph) = nullptr;
  Status (*rewrite_for)(Graph& graph, const Target& target) = nullptr;
};
/// Returns all passes in the order in which they run: by phase, then by name.
std::span<const GraphPass* const> graph_passes();

/// Runs the phases kCleanUp and kFusion.
Status run_passes(Graph& graph);
/// Runs the other phases. Called by compile_cpu().
Status run_target_passes(Graph& graph, const Target& target);

/// Runs a single pass, for tests. not_found: no pass has this name; invalid_argument: the pass needs a target.
Status run_pass(std::string_view name, Graph& graph);
Status run_pass(std::string_view name, Graph& graph, const Target& target);

/// Removes ops whose results reach no output.
Status remove_dead(Graph& graph);

}  // namespace redline
