#include "graph/pass.h"

namespace redline {
namespace {

bool writes_for_other_graphs(const Graph& graph, const Op& op) {
  if (!op.def->writes_state) return false;
  for (ValueId id : op.inputs)
    if (graph.value(id).kind == ValueKind::kState && !graph.value(id).state.group.empty()) return true;
  return false;
}

}  // namespace

Status remove_dead(Graph& graph) {
  std::vector<bool> wanted(graph.values.size(), false);
  for (ValueId id : graph.outputs) wanted[static_cast<size_t>(id)] = true;
  std::vector<Op> kept;
  for (auto op = graph.ops.rbegin(); op != graph.ops.rend(); ++op) {
    bool used = writes_for_other_graphs(graph, *op);
    for (ValueId id : op->outputs) used |= wanted[static_cast<size_t>(id)];
    if (!used) continue;
    for (ValueId id : op->inputs) wanted[static_cast<size_t>(id)] = true;
    kept.push_back(std::move(*op));
  }
  graph.ops.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  return {};
}

extern const GraphPass kRemoveDead = {.name = "remove_dead", .phase = PassPhase::kCleanUp, .rewrite = remove_dead};

}  // namespace redline
