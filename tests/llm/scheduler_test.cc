#include "llm/scheduler.h"

#include <gtest/gtest.h>

namespace redline {
namespace {

std::vector<std::pair<size_t, int64_t>> plan(const std::vector<ScheduledRequest>& requests, const StepBudget& budget) {
  std::vector<ScheduledTokens> grants;
  make_fcfs_scheduler()->plan(requests, budget, grants);
  std::vector<std::pair<size_t, int64_t>> result;
  for (const ScheduledTokens& grant : grants) result.emplace_back(grant.request, grant.tokens);
  return result;
}
using Grants = std::vector<std::pair<size_t, int64_t>>;

TEST(FcfsScheduler, SampledTokensGoFirstAndPromptsFillTheStep) {
  EXPECT_EQ(plan({{100, true}, {1, true}, {50, false}, {1, true}}, {64, 8, 1000}), (Grants{{1, 1}, {3, 1}, {0, 62}}));
  EXPECT_EQ(plan({{10, true}, {1, true}, {90, false}}, {64, 8, 1000}), (Grants{{1, 1}, {0, 10}, {2, 53}}));
}

TEST(FcfsScheduler, APromptIsAdmittedWhenTheCacheHasRoomAndIsNotOvertaken) {
  EXPECT_EQ(plan({{1, true}, {50, false}, {5, false}}, {64, 8, 49}), (Grants{{0, 1}}));
  EXPECT_EQ(plan({{1, true}, {50, false}, {5, false}}, {64, 8, 52}), (Grants{{0, 1}, {1, 50}}));
  // A page for each sampled token, and the rest of a running prompt, are not given to others.
  EXPECT_EQ(plan({{1, true}, {50, false}}, {64, 8, 81, 32}), (Grants{{0, 1}}));
  EXPECT_EQ(plan({{40, true}, {50, false}}, {512, 8, 89, 32}), (Grants{{0, 40}}));
  EXPECT_EQ(plan({{40, true}, {50, false}}, {512, 8, 90, 32}), (Grants{{0, 40}, {1, 50}}));
  EXPECT_EQ(plan({{50, false}, {5, false}}, {64, 8, 55}), (Grants{{0, 50}, {1, 5}}));
}

TEST(FcfsScheduler, PromptsBesideSampledTokensHaveABudgetOfTheirOwn) {
  EXPECT_EQ(plan({{100, true}, {1, true}, {50, false}}, {64, 8, 1000, 1, 16}), (Grants{{1, 1}, {0, 16}}));
  EXPECT_EQ(plan({{10, true}, {1, true}, {50, false}}, {64, 8, 1000, 1, 16}), (Grants{{1, 1}, {0, 10}, {2, 6}}));
  EXPECT_EQ(plan({{100, true}, {50, false}}, {64, 8, 1000, 1, 16}), (Grants{{0, 64}}));  // nobody decodes
}

TEST(FcfsScheduler, LimitsOfTheStepHold) {
  EXPECT_EQ(plan({{1, true}, {1, true}, {1, true}}, {64, 2, 1000}), (Grants{{0, 1}, {1, 1}}));
  EXPECT_EQ(plan({{1, true}, {1, true}, {9, true}}, {2, 8, 1000}), (Grants{{0, 1}, {1, 1}}));
  EXPECT_EQ(plan({{0, true}, {0, false}}, {64, 8, 1000}), Grants());
  EXPECT_EQ(plan({}, {64, 8, 1000}), Grants());
}

}  // namespace
}  // namespace redline
