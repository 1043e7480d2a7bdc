#include "server/body_budget.h"

#include <gtest/gtest.h>

#include <vector>

namespace redline::server {
namespace {

constexpr int64_t kMiB = 1 << 20;

// The bound holds for all clients together, and what they give back can be had again.
TEST(BodyBudget, BodiesOfManyClientsStayWithinTheLimit) {
  const auto budget = std::make_shared<BodyBudget>(100 * kMiB);
  std::vector<std::shared_ptr<BodyBudget::Lease>> leases;
  for (int i = 0; i < 60; ++i) leases.push_back(budget->open("10.0.0." + std::to_string(i), [] {}));
  for (int part = 0; part < 8; ++part)
    for (const auto& lease : leases) {
      (void)lease->grow(4 * kMiB);
      ASSERT_LE(budget->used(), 100 * kMiB);
    }
  leases.clear();
  EXPECT_EQ(budget->used(), 0);
  EXPECT_TRUE(budget->open("a", {})->grow(100 * kMiB));
  EXPECT_FALSE(budget->open("a", {})->grow(100 * kMiB + 1));
}

// Whoever fills the budget with bodies that never end loses them, and not the others.
TEST(BodyBudget, EvictionTakesBodiesOfTheClientWithTheMost) {
  const auto budget = std::make_shared<BodyBudget>(64 * kMiB);
  std::vector<std::shared_ptr<BodyBudget::Lease>> hog;
  std::vector<int> lost(8);
  for (size_t i = 0; i < 8; ++i) {
    hog.push_back(budget->open("hog", [&lost, i] { ++lost[i]; }));
    ASSERT_TRUE(hog.back()->grow(static_cast<int64_t>(i + 4) * kMiB));
  }
  EXPECT_EQ(budget->used(), 60 * kMiB);
  EXPECT_FALSE(hog[0]->grow(5 * kMiB));  // its own
  EXPECT_EQ(lost, std::vector<int>(8));
  const auto other = budget->open("other", [] { FAIL(); });
  EXPECT_TRUE(other->grow(kMiB));
  EXPECT_TRUE(other->grow(9 * kMiB));
  EXPECT_EQ(lost, (std::vector<int>{0, 0, 0, 0, 0, 0, 0, 1}));
  EXPECT_TRUE(hog[7]->is_taken_away());
  EXPECT_FALSE(hog[7]->grow(1));
  EXPECT_FALSE(hog[7]->keep());
  EXPECT_EQ(budget->used(), 59 * kMiB);
  // A client that has as much as the others takes nothing from them.
  EXPECT_FALSE(other->grow(45 * kMiB));
}

TEST(BodyBudget, ABodyThatHasBeenReadIsNotTakenAway) {
  const auto budget = std::make_shared<BodyBudget>(10 * kMiB);
  const auto first = budget->open("a", [] { FAIL(); });
  ASSERT_TRUE(first->grow(10 * kMiB));
  ASSERT_TRUE(first->keep());
  EXPECT_FALSE(budget->open("b", {})->grow(kMiB));
}

}  // namespace
}  // namespace redline::server
