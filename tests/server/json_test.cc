// JSON of requests: what is too large is refused before it is made, and the time is linear.
#include "server/json.h"

#include <gtest/gtest.h>

namespace redline::server {
namespace {

TEST(ServerJson, ValuesAreThoseOfTheText) {
  for (const char* text : {"null", "true", "-5", "18446744073709551615", "1.5", "\"a\\u00e9\"", "[]", "{}",
                           "[1,[2,{\"a\":[3,{}]}],\"x\"]", "{\"b\":1,\"a\":{\"c\":[null,false]}}"}) {
    const auto json = parse_json(text);
    ASSERT_TRUE(json.ok()) << text;
    EXPECT_EQ(to_text(*const_cast<Outcome<Json>&>(json)), to_text(Json::parse(text)));
  }
}

TEST(ServerJson, AZeroByteDoesNotEndTheText) {
  EXPECT_FALSE(parse_json(std::string_view("{}\0{", 4)).ok());
  EXPECT_EQ(parse_json(std::string_view("{}\0", 3)).error().message, "the body is not JSON: a zero byte at byte 2");
}

TEST(ServerJson, OfMembersOfOneNameTheLastCounts) {
  auto few = parse_json(R"({"a": 1, "b": 2, "a": {"c": 3}})");
  ASSERT_TRUE(few.ok());
  EXPECT_EQ(to_text(*few), R"({"a":{"c":3},"b":2})");
  std::string text = "{";
  for (int round = 0; round < 2; ++round)
    for (int i = 0; i < 100; ++i) text += fmt::format("\"{}\":{},", i, round);
  text.back() = '}';
  auto many = parse_json(text);
  ASSERT_TRUE(many.ok());
  EXPECT_EQ(many->size(), 100u);
  for (const auto& [name, value] : many->items()) EXPECT_EQ(value, 1) << name;
}

// With a look at all members before it for each, this would be 10^9 comparisons.
TEST(ServerJson, AnObjectOfManyMembersTakesLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 50000; ++i) text += fmt::format("\"name {}\":0,", i);
  text.back() = '}';
  auto json = parse_json(text);
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json->size(), 50000u);
}

TEST(ServerJson, TooManyValuesAreRefusedBeforeTheyAreMade) {
  std::string text = "[";
  for (int i = 0; i < 1000; ++i) text += "[],";
  text.back() = ']';
  int64_t asked = 0;
  const auto take = [&](int64_t bytes) {
    asked = bytes;
    return false;
  };
  EXPECT_EQ(parse_json(text, {.max_values = 1000, .take_memory = take}).error().status, 400);
  EXPECT_EQ(asked, 0);
  const auto refused = parse_json(text, {.take_memory = take});
  EXPECT_EQ(refused.error().status, 503);
  EXPECT_GT(refused.error().retry_after_s, 0);
  EXPECT_GE(asked, static_cast<int64_t>(1000 * sizeof(Json)));
}

TEST(ServerJson, ParsingEndsWhenNobodyWaitsForIt) {
  std::string text = "[";
  for (int i = 0; i < 200000; ++i) text += "0,";
  text.back() = ']';
  int looks = 0;
  EXPECT_TRUE(parse_json(text, {.is_abandoned = [&] { return ++looks < 0; }}).ok());
  EXPECT_GE(looks, 10);
  looks = 0;
  EXPECT_FALSE(parse_json(text, {.is_abandoned = [&] { return ++looks == 2; }}).ok());
  EXPECT_EQ(looks, 2);
}

}  // namespace
}  // namespace redline::server
