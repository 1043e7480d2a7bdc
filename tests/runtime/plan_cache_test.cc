// The bounded map of the matrix library's plans.
#include "kernels/cuda/plan_cache.h"

#include <gtest/gtest.h>

#include <set>

namespace redline::tiles {
namespace {

std::set<int> g_alive;
struct CountedPlan {
  int number = -1;
  ~CountedPlan() { g_alive.erase(number); }
};

TEST(PlanCache, EvictsTheLeastRecentlyUsedPlan) {
  PlanCache<int, CountedPlan> cache(3);
  int made = 0;
  const auto use = [&](int key) {
    return cache
        .get(key,
             [&](CountedPlan& plan) {
               ++made;
               plan.number = key;
               g_alive.insert(key);
             })
        .number;
  };
  for (const int key : {1, 2, 3, 1}) EXPECT_EQ(use(key), key);
  EXPECT_EQ(made, 3);
  EXPECT_EQ(use(4), 4);  // 2 was used least recently
  EXPECT_EQ(g_alive, (std::set{1, 3, 4}));
  EXPECT_EQ(use(1), 1);
  EXPECT_EQ(made, 4);
  EXPECT_EQ(use(2), 2);
  EXPECT_EQ(g_alive, (std::set{1, 2, 4}));
  for (int key = 10; key < 1000; ++key) use(key);
  EXPECT_EQ(cache.size(), 3u);
  EXPECT_EQ(g_alive, (std::set{997, 998, 999}));
  cache.clear();
  EXPECT_TRUE(g_alive.empty());
}

}  // namespace
}  // namespace redline::tiles
