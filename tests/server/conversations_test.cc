#include "server/conversations.h"

#include <gtest/gtest.h>

namespace redline::server {
namespace {

Conversation conversation_with(const std::string& id, const std::string& client, const std::string& text = "") {
  return {id, client, 1, Json::object(), Json::array({{{"id", "msg_" + id}, {"text", text}}})};
}
void add_text(Conversation& c) { c.items.push_back({{"text", "more"}}); }

TEST(Conversations, AreThoseOfTheClientThatMadeThem) {
  Conversations all;
  all.keep(conversation_with("a", "ann"));
  ASSERT_TRUE(all.find("a", "ann"));
  EXPECT_FALSE(all.find("a", "bob"));
  EXPECT_EQ(all.update("a", "bob", add_text).result, Conversations::Updated::kNotFound);
  const auto before = all.find("a", "ann");
  ASSERT_TRUE(all.update("a", "ann", add_text).value);
  EXPECT_EQ(before->items.size(), 1);  // in use, it stays as it was
  EXPECT_EQ(all.find("a", "ann")->items.size(), 2);
  EXPECT_FALSE(all.erase("a", "bob"));
  EXPECT_TRUE(all.erase("a", "ann"));
  EXPECT_FALSE(all.erase("a", "ann"));
  EXPECT_FALSE(all.update("a", "ann", add_text).value);
}

TEST(Conversations, ThoseThatHaveNotChangedForLongGoFirst) {
  constexpr size_t kMaxKept = 3, kMaxBytes = 1000;
  Conversations all(kMaxKept, kMaxBytes);
  for (const char* id : {"a", "b", "c"}) all.keep(conversation_with(id, ""));
  ASSERT_TRUE(all.update("a", "", add_text).value);
  all.keep(conversation_with("d", ""));
  EXPECT_FALSE(all.find("b", ""));
  EXPECT_TRUE(all.find("a", "") && all.find("c", "") && all.find("d", ""));
  const std::string most(kMaxBytes * 9 / 10, 'x');
  all.keep(conversation_with("e", "", most));
  EXPECT_TRUE(all.find("e", ""));
  EXPECT_FALSE(all.find("c", ""));
  EXPECT_FALSE(all.keep(conversation_with("f", "", most + most)));  // more than there is room for
  EXPECT_FALSE(all.find("f", ""));
  const auto add_most = [&](Conversation& c) { c.items.push_back({{"text", most}}); };
  EXPECT_EQ(all.update("e", "", add_most).result, Conversations::Updated::kTooLarge);
  ASSERT_TRUE(all.find("e", ""));
  EXPECT_EQ(all.find("e", "")->items.size(), 1);
}

}  // namespace
}  // namespace redline::server
