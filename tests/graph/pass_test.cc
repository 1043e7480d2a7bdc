#include "graph/pass.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace redline::test {
namespace {

TEST(Passes, RunByPhaseAndEachHasOneOfTheTwoFunctions) {
  const auto passes = graph_passes();
  ASSERT_FALSE(passes.empty());
  EXPECT_TRUE(std::is_sorted(passes.begin(), passes.end(),
                             [](const GraphPass* a, const GraphPass* b) { return a->phase < b->phase; }));
  EXPECT_EQ(passes.front()->name, "remove_dead");
  EXPECT_EQ(passes.back()->name, "prepare_activations");
  for (const GraphPass* pass : passes) {
    EXPECT_NE(pass->rewrite == nullptr, pass->rewrite_for == nullptr) << pass->name;
    EXPECT_EQ(pass->rewrite_for != nullptr, pass->phase >= PassPhase::kTargetFusion) << pass->name;
  }
}

TEST(Passes, AreFoundByName) {
  Graph graph;
  EXPECT_TRUE(run_pass("remove_dead", graph).ok());
  EXPECT_EQ(run_pass("fuse_qkv", graph).code(), Code::invalid_argument);
  EXPECT_EQ(run_pass("fuse_everything", graph).code(), Code::not_found);
}

}  // namespace
}  // namespace redline::test
