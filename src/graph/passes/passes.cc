#include "graph/passes/passes.h"

namespace redline {

Status run_machine_passes(Graph& graph, const Target& target) {
  struct Pass {
    std::string_view name;
    Status (*run)(Graph&, const Target&);
  };
  static constexpr Pass kPasses[] = {{"fuse_gated_linear", fuse_gated_linear},
                                     {"fuse_qkv", fuse_qkv},
                                     {"fuse_group_norm", fuse_group_norm},
                                     {"prepare_activations", prepare_activations}};
  for (const Pass& pass : kPasses) {
    REDLINE_TRY(pass.run(graph, target).within(pass.name));
    REDLINE_TRY(graph.check().within(pass.name));
  }
  return {};
}

Status run_passes(Graph& graph) {
  struct Pass {
    std::string_view name;
    Status (*run)(Graph&);
  };
  static constexpr Pass kPasses[] = {{"remove_dead", remove_dead},
                                     {"fuse_residual", fuse_residual},
                                     {"fuse_gate", fuse_gate},
                                     {"fuse_joint_heads", fuse_joint_heads}};
  for (const Pass& pass : kPasses) {
    REDLINE_TRY(pass.run(graph).within(pass.name));
    REDLINE_TRY(graph.check().within(pass.name));
  }
  return {};
}

}  // namespace redline
