#include "graph/pass.h"

#include <algorithm>

namespace redline {

#define REDLINE_ROW(pass) extern const GraphPass pass;
#include <passes.inc>  // of the build: one row per file in passes/
#undef REDLINE_ROW

namespace {

Status run(const GraphPass& pass, Graph& graph, const Target* target) {
  REDLINE_TRY((pass.rewrite ? pass.rewrite(graph) : pass.rewrite_for(graph, *target)).within(pass.name));
  return graph.check().within(pass.name);
}

Status run_named(std::string_view name, Graph& graph, const Target* target) {
  for (const GraphPass* pass : graph_passes()) {
    if (pass->name != name) continue;
    if (pass->rewrite_for && !target) return invalid_argument("the pass {} needs a target", name);
    return run(*pass, graph, target);
  }
  return not_found("there is no pass {}", name);
}

}  // namespace

std::span<const GraphPass* const> graph_passes() {
  static const std::vector<const GraphPass*> all = [] {
    std::vector<const GraphPass*> rows = {
#define REDLINE_ROW(pass) &pass,
#include <passes.inc>
#undef REDLINE_ROW
    };
    std::sort(rows.begin(), rows.end(), [](const GraphPass* a, const GraphPass* b) {
      return std::pair(a->phase, a->name) < std::pair(b->phase, b->name);
    });
    return rows;
  }();
  return all;
}

Status run_passes(Graph& graph) {
  for (const GraphPass* pass : graph_passes())
    if (pass->rewrite) REDLINE_TRY(run(*pass, graph, nullptr));
  return {};
}

Status run_target_passes(Graph& graph, const Target& target) {
  for (const GraphPass* pass : graph_passes())
    if (pass->rewrite_for) REDLINE_TRY(run(*pass, graph, &target));
  return {};
}

Status run_pass(std::string_view name, Graph& graph) { return run_named(name, graph, nullptr); }
Status run_pass(std::string_view name, Graph& graph, const Target& target) { return run_named(name, graph, &target); }

}  // namespace redline
