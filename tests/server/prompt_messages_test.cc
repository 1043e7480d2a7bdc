#include "server/prompt_messages.h"

#include <gtest/gtest.h>

namespace redline::server {
namespace {

Json text_message(const char* role, const char* content) { return {{"role", role}, {"content", content}}; }

TEST(PromptMessages, LeadingSystemMessagesBecomeOne) {
  const Json messages = {text_message("system", "A"), text_message("system", "B"), text_message("user", "u"),
                         text_message("system", "C")};
  EXPECT_EQ(merged_system_messages(messages, SystemMessages::kLeading),
            Json({text_message("system", "A\n\nB"), text_message("user", "u"), text_message("system", "C")}));
  EXPECT_EQ(merged_system_messages(messages, SystemMessages::kAll),
            Json({text_message("system", "A\n\nB\n\nC"), text_message("user", "u")}));
  const Json later = {text_message("user", "u"), text_message("system", "C")};
  EXPECT_EQ(merged_system_messages(later, SystemMessages::kLeading), later);
  EXPECT_EQ(merged_system_messages(later, SystemMessages::kAll),
            Json({text_message("system", "C"), text_message("user", "u")}));
  EXPECT_TRUE(has_later_system_message(messages));
  EXPECT_FALSE(has_later_system_message(Json({text_message("system", "A"), text_message("user", "u")})));
}

TEST(PromptMessages, WhatATemplateLeavesOutIsSeen) {
  const Json messages = {text_message("system", " A\n"), text_message("system", "B")};
  EXPECT_TRUE(writes_system_messages("<s>A</s><s>B</s>", messages));
  EXPECT_FALSE(writes_system_messages("<s>A</s>", messages));
}

TEST(PromptMessages, CallsAndResultsAsText) {
  Json assistant = text_message("assistant", "So.");
  assistant["tool_calls"] = {{{"id", "1"}, {"function", {{"name", "f"}, {"arguments", "{\"a\":1}"}}}},
                             {{"id", "2"}, {"function", {{"name", "g"}, {"arguments", "not JSON"}}}}};
  const Json messages = {text_message("user", "u"), assistant, text_message("tool", "one"), text_message("tool", "two"),
                         text_message("user", "on")};
  EXPECT_TRUE(has_tool_messages(messages));
  const Json plain = tool_messages_as_text(messages);
  EXPECT_FALSE(has_tool_messages(plain));
  ASSERT_EQ(plain.size(), 3u) << plain;
  EXPECT_EQ(plain[1]["content"],
            "So.\n<tool_call>\n{\"name\":\"f\",\"arguments\":{\"a\":1}}\n</tool_call>\n"
            "<tool_call>\n{\"name\":\"g\",\"arguments\":\"not JSON\"}\n</tool_call>");
  EXPECT_EQ(plain[2],
            text_message("user", "<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>\non"));
}

// Printing JSON recurses as deep as it nests.
TEST(PromptMessages, ArgumentsThatNestTooDeepStayText) {
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  Json assistant = text_message("assistant", "");
  assistant["tool_calls"] = {{{"id", "1"}, {"function", {{"name", "f"}, {"arguments", deep}}}}};
  const Json plain = tool_messages_as_text(Json::array({assistant}));
  EXPECT_EQ(plain[0]["content"], "<tool_call>\n{\"name\":\"f\",\"arguments\":\"" + deep + "\"}\n</tool_call>");
}

TEST(PromptMessages, InstructionsGoWhereTheTemplateTakesThem) {
  const Json with_system = {text_message("system", "S"), text_message("user", "u")};
  EXPECT_EQ(with_instructions(with_system, "I", false),
            Json({text_message("system", "S\n\nI"), text_message("user", "u")}));
  EXPECT_EQ(with_instructions(with_system, "I", true), Json::array({text_message("user", "S\n\nI\n\nu")}));
  const Json without = {text_message("assistant", "a"), text_message("user", "u")};
  EXPECT_EQ(with_instructions(without, "I", true),
            Json({text_message("assistant", "a"), text_message("user", "I\n\nu")}));
  EXPECT_EQ(with_instructions(Json::array(), "I", true), Json::array({text_message("user", "I")}));
}

}  // namespace
}  // namespace redline::server
