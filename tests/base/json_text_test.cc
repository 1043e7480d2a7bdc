// Bounds of JSON that others have written: nesting, number of values, zero bytes.
#include "base/json_text.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace redline {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string nested(int levels, const char* open = "[", const char* close = "]") {
  std::string text;
  for (int i = 0; i < levels; ++i) text += open;
  text += "1";
  for (int i = 0; i < levels; ++i) text += close;
  return text;
}

TEST(JsonText, NestingIsBoundedAndTheErrorNamesFileByteAndLine) {
  EXPECT_TRUE(check_json_bounds(nested(kMaxJsonDepth), "x").ok());
  EXPECT_TRUE(check_json_bounds(nested(kMaxJsonDepth, "{\"a\":", "}"), "x").ok());
  const Status deep = check_json_bounds("{\n\"a\":\n" + nested(kMaxJsonDepth) + "}", "config.json");
  EXPECT_EQ(deep.message(), "config.json: at byte 70 (line 3): JSON nested more than 64 levels deep");
  for (const int levels : {kMaxJsonDepth + 1, 1000, 10'000'000}) {
    EXPECT_THAT(check_json_bounds(nested(levels), "f").message(), StartsWith("f: at byte 64 (line 1): JSON nested"));
    EXPECT_FALSE(check_json_bounds(nested(levels, "[{\"k\": ", "}]"), "f").ok());
    EXPECT_FALSE(check_json_bounds(std::string(static_cast<size_t>(levels), '['), "f").ok());
  }
}

// With nlohmann's own parser, which compares each name with all members before it, these would be 2 * 10^10
// comparisons.
TEST(JsonText, AnOrderedObjectOfManyMembersTakesLinearTime) {
  using Json = nlohmann::ordered_json;
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += "\"name " + std::to_string(i) + "\":0,";
  text += "\"name 1\":1}";
  const Json json = parse_json_or_discard<Json>(text);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json.size(), 200'000u);
  EXPECT_EQ(json.begin().key(), "name 0");
  EXPECT_EQ((++json.begin()).value(), 1);
}

TEST(JsonText, OrderedValuesAreThoseOfTheText) {
  using Json = nlohmann::ordered_json;
  for (const char* text :
       {"null", "-5", "1.5", "\"a\\u00e9\"", "[]", "{}", R"({"b": [1, {"c": {}}], "a": "x", "b": null})"})
    EXPECT_EQ(parse_json_or_discard<Json>(text).dump(), Json::parse(text).dump()) << text;
  for (const char* text : {"", "{", "1 2", "1e999", "[1,]", "\"\xff\""})
    EXPECT_TRUE(parse_json_or_discard<Json>(text).is_discarded()) << text;
  EXPECT_TRUE(parse_json_or_discard<Json>(nested(kMaxJsonDepth + 1)).is_discarded());
}

TEST(JsonText, BracketsInsideStringsDoNotNest) {
  const std::string brackets(1000, '[');
  EXPECT_TRUE(check_json_bounds("[\"" + brackets + "\"]", "x").ok());
  EXPECT_TRUE(check_json_bounds("[\"\\\"" + brackets + "\\\\\"]", "x").ok());
  EXPECT_FALSE(check_json_bounds("[\"\\\\\", " + brackets, "x").ok());
}

TEST(JsonText, ValuesAreBounded) {
  const JsonBounds four{.depth = 8, .values = 4};
  EXPECT_TRUE(check_json_bounds("[1, 2, 3]", "x", four).ok());
  EXPECT_THAT(check_json_bounds("[1, 2, 3, 4]", "x", four).message(),
              HasSubstr("at byte 8 (line 1): JSON of more than 4"));
  EXPECT_FALSE(check_json_bounds("[[],[],[]]", "x", four).ok());
}

TEST(JsonText, ZeroBytesAreNoEnd) {
  const std::string text("{}\0{", 4);
  EXPECT_THAT(check_json_bounds(text, "x").message(), HasSubstr("at byte 2 (line 1): a zero byte"));
}

TEST(JsonText, DiscardsWhatIsOutOfBounds) {
  using Json = nlohmann::json;
  EXPECT_EQ(parse_json_or_discard<Json>("[1]"), Json({1}));
  for (const std::string& bad : {std::string("["), std::string(), nested(1000), std::string("1\0", 2)})
    EXPECT_TRUE(parse_json_or_discard<Json>(bad).is_discarded()) << bad.substr(0, 20);
}

}  // namespace
}  // namespace redline
