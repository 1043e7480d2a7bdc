#include "server/stored_responses.h"

#include <gtest/gtest.h>

namespace redline::server {
namespace {

StoredResponse stored_response(const std::string& id, const std::string& client, const std::string& text = "") {
  return {id, client, {{"id", id}}, Json::array({{{"role", "user"}, {"content", text}}}), Json::array()};
}

TEST(StoredResponses, AreThoseOfTheClientThatMadeThem) {
  StoredResponses all;
  all.keep(stored_response("a", "ann", "hello"));
  ASSERT_TRUE(all.find("a", "ann"));
  EXPECT_EQ(all.find("a", "ann")->messages[0]["content"], "hello");
  EXPECT_FALSE(all.find("a", "bob"));
  EXPECT_FALSE(all.find("b", "ann"));
  EXPECT_FALSE(all.erase("a", "bob"));
  EXPECT_TRUE(all.erase("a", "ann"));
  EXPECT_FALSE(all.erase("a", "ann"));
  EXPECT_FALSE(all.find("a", "ann"));
}

TEST(StoredResponses, TheOldestGoFirst) {
  constexpr size_t kMaxKept = 5, kMaxBytes = 1000;
  StoredResponses all(kMaxKept, kMaxBytes);
  const auto id = [](size_t i) { return std::to_string(i); };
  for (size_t i = 0; i <= kMaxKept; ++i) all.keep(stored_response(id(i), ""));
  EXPECT_FALSE(all.find(id(0), ""));
  for (size_t i = 1; i <= kMaxKept; ++i) ASSERT_TRUE(all.find(id(i), "")) << i;

  // In use, it stays readable.
  const auto in_use = all.find(id(1), "");
  const std::string half(kMaxBytes / 2, 'x');
  all.keep(stored_response("x", "", half));  // the sixth
  EXPECT_FALSE(all.find(id(1), ""));
  EXPECT_EQ(in_use->id, id(1));
  EXPECT_TRUE(all.find("x", ""));
  all.keep(stored_response("y", "", half));
  EXPECT_FALSE(all.find("x", ""));
  EXPECT_TRUE(all.find("y", ""));
  EXPECT_FALSE(all.keep(stored_response("z", "", half + half)));  // more than there is room for
  EXPECT_FALSE(all.find("z", ""));
  EXPECT_TRUE(all.find("y", ""));
  all.keep(stored_response("last", ""));
  EXPECT_TRUE(all.find("last", ""));
}

}  // namespace
}  // namespace redline::server
