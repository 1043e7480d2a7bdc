#include "server/form.h"

#include <gtest/gtest.h>

#include <random>

namespace redline::server {
namespace {

const Field item{"", kString};
const Schema schema{"Test",
                    {{"prompt", kString, ""},
                     {"n", kInteger, ""},
                     {"stream", kBoolean, ""},
                     {"names", kArray, "", {.items = &item}},
                     {"quality", kString | kNumber, ""}}};

constexpr char kType[] = "multipart/form-data; boundary=xyz";

std::string part(const std::string& disposition, const std::string& body) {
  return "--xyz\r\nContent-Disposition: form-data; " + disposition + "\r\n\r\n" + body + "\r\n";
}

TEST(Form, FieldsHaveTheTypesOfTheSchema) {
  const std::string bytes("\x89PNG\r\n--xy\0z", 12);
  const std::string body =
      part("name=\"prompt\"", "a \"red\" circle\r\n") + part("name=n", "3") + part("name=\"stream\"", "true") +
      part("name=\"names[]\"", "a") + part("name=\"names[]\"", "1") + part("name=\"other\"", "12") +
      part("name=\"quality\"", "0.5") + part("name=\"image\"; filename=\"a;\\\"b.png\"", bytes) + "--xyz--\r\n";
  for (const std::string& text : {body, "a preamble\r\n" + body}) {
    auto form = parse_form(kType, text, schema);
    ASSERT_TRUE(form.ok()) << form.error().message;
    EXPECT_EQ(form->fields,
              Json::parse(R"({"prompt": "a \"red\" circle\r\n", "n": 3, "stream": true, "names": ["a", "1"],
                                            "other": "12", "quality": "0.5"})"));
    ASSERT_EQ(form->files.size(), 1u);
    EXPECT_EQ(form->files[0].field, "image");
    EXPECT_EQ(form->files[0].name, "a;\"b.png");
    EXPECT_EQ(form->files[0].bytes, bytes);
  }
}

TEST(Form, NumbersThatAreNoneStayTextForTheCheckToName) {
  auto form = parse_form(kType, part("name=\"n\"", "three") + "--xyz--", schema);
  ASSERT_TRUE(form.ok());
  Json fields = form->fields;
  std::vector<std::string> ignored;
  const auto error = validate(schema, fields, ignored);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->param, "n");
}

TEST(Form, QueriesHaveTheTypesOfTheSchema) {
  auto query = parse_query("prompt=a+b%20%26&n=3&names[]=x&names%5B%5D=y&other=12&&stream", schema);
  ASSERT_TRUE(query.ok());
  EXPECT_EQ(*query, Json::parse(R"({"prompt": "a b &", "n": 3, "names": ["x", "y"], "other": "12", "stream": ""})"));
  EXPECT_EQ(*parse_query("", schema), Json::object());
  for (const char* bad : {"n=%", "n=%2", "%zz=1", "n=%00"}) EXPECT_FALSE(parse_query(bad, schema).ok()) << bad;
}

TEST(Form, TypesAreRecognized) {
  EXPECT_TRUE(is_form("Multipart/Form-Data; boundary=a"));
  EXPECT_FALSE(is_form("application/json"));
  EXPECT_FALSE(is_form(""));
}

TEST(Form, MalformedOnesAreRefused) {
  const std::string good = part("name=\"n\"", "1") + "--xyz--\r\n";
  ASSERT_TRUE(parse_form(kType, good, schema).ok());
  EXPECT_FALSE(parse_form("multipart/form-data", good, schema).ok());
  EXPECT_FALSE(parse_form("multipart/form-data; boundary=", good, schema).ok());
  EXPECT_FALSE(parse_form("multipart/form-data; boundary=abc", good, schema).ok());
  EXPECT_FALSE(parse_form(kType, part("filename=\"x\"", "1") + "--xyz--", schema).ok());
  EXPECT_FALSE(parse_form(kType, "--xyz\r\nno colon\r\n\r\n1\r\n--xyz--", schema).ok());
  for (size_t cut = 0; cut + 4 < good.size(); ++cut)
    EXPECT_FALSE(parse_form(kType, good.substr(0, cut), schema).ok()) << cut;
}

// Whatever the bytes are, there is an answer, and files never hold more than the body.
TEST(Form, RandomBodiesEndInAnAnswer) {
  std::mt19937 random(7);
  const char* const pieces[] = {
      "--xyz", "\r\n", "--",     "Content-Disposition: form-data; name=\"n\"", "; filename=\"f\"", "1",
      ":",     "\"",   "--xyz--"};
  for (int round = 0; round < 5000; ++round) {
    std::string body;
    for (uint32_t i = random() % 14; i > 0; --i) body += pieces[random() % std::size(pieces)];
    auto form = parse_form(kType, body, schema);
    if (!form.ok()) continue;
    size_t bytes = 0;
    for (const FormFile& file : form->files) bytes += file.bytes.size();
    EXPECT_LE(bytes, body.size());
  }
}

// Each border would otherwise begin a part that is a copy of the rest of the body: a thousand copies of a large file.
TEST(Form, ABorderRightAfterABorderIsNoPart) {
  std::string body;
  for (int i = 0; i < 3; ++i) body += "--a:b\r\n";
  body += "Content-Disposition: form-data; name=f; filename=f\r\n\r\nbytes\r\n--a:b--\r\n";
  const auto form = parse_form("multipart/form-data; boundary=\"a:b\"", body, schema);
  ASSERT_FALSE(form.ok());
  EXPECT_NE(form.error().message.find("a part without an empty line"), std::string::npos) << form.error().message;
}

}  // namespace
}  // namespace redline::server
