// Checks of request bodies, and that the description says the same.
#include "server/schema.h"

#include <gtest/gtest.h>

namespace redline::server {
namespace {

const Field kTag{"", kString, "", {.min_length = 1, .max_length = 3}};
const Schema kPoint{"Point", {{"x", kNumber, "", {.required = true}}, {"y", kInteger, "", {.min = 0, .max = 9}}}};
const Schema kShape{"Shape",
                    {{"name", kString, "the name", {.required = true}},
                     {"kind", kString, "", {.choices = {"round", "flat"}}},
                     {"tags", kArray, "", {.max_items = 2, .items = &kTag}},
                     {"at", kObject, "", {.object = &kPoint}},
                     {"size", kString | kInteger, "", {.min = 1, .max_length = 2}},
                     {"tilt", kNumber, "", {.only = {0}, .why = "is not supported"}},
                     {"note", kString, "", {.is_ignored = true}}},
                    false,
                    {{"colour", "is called color"}}};

/// "param: message" of the error, or "" if the text is accepted.
std::string error_of(const char* text, std::vector<std::string>* ignored = nullptr) {
  auto json = parse_json(text);
  if (!json.ok()) return json.error().message;
  std::vector<std::string> own;
  const auto error = validate(kShape, *json, ignored ? *ignored : own);
  return error ? error->param + ": " + error->message : "";
}

TEST(Schema, AcceptsWhatItDescribes) {
  EXPECT_EQ(error_of(R"({"name": "a", "kind": "flat", "tags": ["äöü"], "at": {"x": 1.5, "y": 9}, "size": 1})"), "");
  EXPECT_EQ(error_of(R"({"name": "a", "kind": null, "at": {"x": -1, "y": 2.0}, "size": "ab", "tilt": 0.0})"), "");
}

TEST(Schema, NamesTheFieldAtFault) {
  EXPECT_EQ(error_of("{}"), "name: name is missing: the name");
  EXPECT_EQ(error_of(R"({"name": null})"), "name: name is missing: the name");
  EXPECT_EQ(error_of(R"({"name": "a", "at": {}})"), "at.x: at.x is missing") << "it has no description";
  EXPECT_EQ(error_of(R"({"name": 3})"), "name: name must be a string");
  EXPECT_EQ(error_of(R"({"nam": "a"})"), "nam: unknown field nam; did you mean \"name\"?");
  EXPECT_EQ(error_of(R"({"name": "a", "colour": 1})"), "colour: colour is called color");
  EXPECT_EQ(error_of(R"({"name": "a", "kind": "square"})"), "kind: kind is \"square\"; it must be one of round, flat");
  EXPECT_EQ(error_of(R"({"name": "a", "tags": ["a", "b", "c"]})"), "tags: tags has 3 items; the limit is 2");
  EXPECT_EQ(error_of(R"({"name": "a", "tags": ["a", 1]})"), "tags[1]: tags[1] must be a string");
  EXPECT_EQ(error_of(R"({"name": "a", "tags": ["abcd"]})"), "tags[0]: tags[0] has 4 characters; the limit is 3");
  EXPECT_EQ(error_of(R"({"name": "a", "at": {"x": 1, "y": 10}})"), "at.y: at.y is 10; it must be from 0 to 9");
  EXPECT_EQ(error_of(R"({"name": "a", "at": {"x": 1, "y": 1.5}})"), "at.y: at.y must be an integer");
  EXPECT_EQ(error_of(R"({"name": "a", "size": true})"), "size: size must be a string or an integer");
  EXPECT_EQ(error_of(R"({"name": "a", "size": 0})"), "size: size is 0; it must be at least 1");
  EXPECT_EQ(error_of(R"({"name": "a", "tilt": 1})"), "tilt: tilt is not supported");
  EXPECT_EQ(error_of("[]"), ": the body must be a JSON object");
}

TEST(Schema, ListsFieldsWithoutEffect) {
  std::vector<std::string> ignored;
  EXPECT_EQ(error_of(R"({"name": "a", "note": "x"})", &ignored), "");
  EXPECT_EQ(ignored, std::vector<std::string>{"note"});
  ignored.clear();
  EXPECT_EQ(error_of(R"({"name": "a", "elsewhere": 1, "at": {"x": 1, "elsewhere": {}}})", &ignored), "");
  EXPECT_EQ(ignored, (std::vector<std::string>{"elsewhere", "at.elsewhere"})) << "in nested objects as well";

  // A field of the items of a long list is named once, because headers have an end.
  const Schema mark{"Mark", {{"note", kString, "", {.is_ignored = true}}}};
  const Field item{"", kObject, "", {.object = &mark}};
  const Schema marks{"Marks", {{"marks", kArray, "", {.items = &item}}}};
  Json json = {{"marks", Json::array()}};
  for (int i = 0; i < 12; ++i) json["marks"].push_back({{"note", "x"}});
  ignored.clear();
  ASSERT_FALSE(validate(marks, json, ignored));
  EXPECT_EQ(ignored, std::vector<std::string>{"marks[].note"});
}

TEST(Schema, RemovesNullsAndMakesIntegers) {
  Json json = *parse_json(R"({"name": "a", "kind": null, "at": {"x": 1, "y": 2.0}})");
  std::vector<std::string> ignored;
  ASSERT_FALSE(validate(kShape, json, ignored));
  EXPECT_FALSE(json.contains("kind"));
  EXPECT_TRUE(json["at"]["y"].is_number_integer());
}

TEST(Schema, DescribesItself) {
  Json components = Json::object();
  EXPECT_EQ(schema_reference(kShape, components, SchemaUse::kAnswer)["$ref"], "#/components/schemas/Shape");
  const Json& shape = components["Shape"];
  EXPECT_EQ(shape["required"], Json({"name"}));
  EXPECT_EQ(shape["additionalProperties"], false);
  Json requests = Json::object();
  schema_reference(kShape, requests, SchemaUse::kRequest);
  EXPECT_FALSE(requests["Shape"].contains("additionalProperties")) << "unknown fields are ignored";
  EXPECT_EQ(shape["properties"]["kind"]["enum"], Json({"round", "flat", nullptr}));
  EXPECT_EQ(shape["properties"]["size"]["type"], Json({"string", "integer", "null"}));
  EXPECT_EQ(shape["properties"]["tags"]["items"]["maxLength"], 3);
  EXPECT_EQ(shape["properties"]["at"]["properties"]["y"]["maximum"], 9);
  EXPECT_EQ(shape["properties"]["at"]["required"], Json({"x"}));
}

TEST(Json, RefusesWhatIsNoJson) {
  EXPECT_NE(parse_json("").error().message.find("empty"), std::string::npos);
  EXPECT_FALSE(parse_json("{").ok());
  EXPECT_FALSE(parse_json("{\"a\": 1} x").ok());
  EXPECT_FALSE(parse_json("{\"a\": \"\xff\"}").ok());
  EXPECT_FALSE(parse_json("{\"a\": \"\\ud800\"}").ok());
  EXPECT_FALSE(parse_json("{\"a\": 1e999}").ok());
  EXPECT_FALSE(parse_json("{\"a\": NaN}").ok());
  EXPECT_TRUE(parse_json("{\"a\": \"[[[\\\"\"}").ok());
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  EXPECT_NE(parse_json(deep).error().message.find("64 levels"), std::string::npos);
}

}  // namespace
}  // namespace redline::server
