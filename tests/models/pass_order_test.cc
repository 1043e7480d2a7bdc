// Passes of one phase give the same graph in any order, as graph/pass.h says: the graphs of all golden language models,
// rewritten in the usual order and in the reverse of it.
#include <gtest/gtest.h>

#include "backends/cpu/cpu_target.h"
#include "graph/pass.h"
#include "models/registry.h"
#include "support/golden.h"

namespace redline::testing {
namespace {

/// The ops in their order, with the names of what they read and write.
std::string listing(const Graph& graph) {
  std::string text;
  const auto names = [&](const std::vector<ValueId>& ids) {
    std::string all;
    for (ValueId id : ids) all += " " + graph.value(id).name;
    return all;
  };
  for (const Op& op : graph.ops)
    text += std::string(op.def->name) + " " + op.name + ":" + names(op.inputs) + " ->" + names(op.outputs) + "\n";
  return text;
}

Status rewrite(Graph& graph, const Target& target, bool reversed) {
  const auto passes = graph_passes();
  for (auto begin = passes.begin(); begin != passes.end();) {
    const auto end = std::find_if(begin, passes.end(), [&](const GraphPass* p) { return p->phase != (*begin)->phase; });
    std::vector<const GraphPass*> phase(begin, end);
    if (reversed) std::reverse(phase.begin(), phase.end());
    for (const GraphPass* pass : phase) REDLINE_TRY(run_pass(pass->name, graph, target));
    begin = end;
  }
  return {};
}

TEST(PassOrder, DoesNotMatterWithinAPhase) {
  const auto kernels = cpu_kernels();
  ASSERT_TRUE(kernels.ok());
  const CpuTarget target(*kernels.value(), /*exact_f32=*/false, /*workers=*/2);
  int rewritten = 0;
  for (const std::string& model : golden_models()) {
    const auto checkpoint = Checkpoint::open(golden_root() + "/" + model);
    ASSERT_TRUE(checkpoint.ok()) << model << ": " << checkpoint.status().to_string();
    const auto built = build_language_model(*checkpoint);
    ASSERT_TRUE(built.ok()) << model << ": " << built.status().to_string();
    Graph usual = built->graph, other = built->graph;
    ASSERT_TRUE(rewrite(usual, target, false).ok()) << model;
    ASSERT_TRUE(rewrite(other, target, true).ok()) << model;
    EXPECT_EQ(listing(usual), listing(other)) << model;
    rewritten += listing(usual) != listing(built->graph);
  }
  EXPECT_GE(rewritten, 40);
}

}  // namespace
}  // namespace redline::testing
