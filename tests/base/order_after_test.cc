#include "base/order_after.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace redline {
namespace {

struct Row {
  std::string name, after;
};

std::vector<std::string> ordered(const std::vector<Row>& rows) {
  std::vector<std::string> names;
  for (const Row& row : order_after(
           rows, [](const Row& r) { return std::string_view(r.name); },
           [](const Row& r) { return std::string_view(r.after); }))
    names.push_back(row.name);
  return names;
}

TEST(OrderAfter, EachRowFollowsTheOneItNames) {
  EXPECT_THAT(ordered({}), ::testing::IsEmpty());
  EXPECT_THAT(ordered({{"c", "b"}, {"b", "a"}, {"a", ""}}), ::testing::ElementsAre("a", "b", "c"));
  EXPECT_THAT(ordered({{"a", ""}, {"c", "a"}, {"b", "a"}, {"d", "c"}}), ::testing::ElementsAre("a", "c", "d", "b"));
}

TEST(OrderAfter, LosesNoRow) {
  EXPECT_THAT(ordered({{"x", "nothing"}, {"a", ""}, {"y", "z"}, {"z", "y"}}),
              ::testing::ElementsAre("a", "x", "y", "z"));
}

}  // namespace
}  // namespace redline
