// Grammars, regular expressions, choices and JSON Schema: what they match, and their errors.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "constraints/constraint_harness.h"

namespace redline {
namespace {

using ::testing::HasSubstr;

void expect_matches(const ConstraintResult& constraint, const std::vector<std::string>& yes,
                    const std::vector<std::string>& no) {
  ASSERT_TRUE(constraint.ok()) << constraint.status().to_string();
  for (const std::string& text : yes) EXPECT_TRUE(matches(*constraint, text)) << text;
  for (const std::string& text : no) EXPECT_FALSE(matches(*constraint, text)) << text;
}

TEST(Gbnf, DialectOfLlamaCpp) {
  expect_matches(grammar("# comment\nroot ::= greeting \" \" name # more\n\ngreeting ::= \"hi\" |\n  \"hello\"\n"
                         "name ::= [A-Z] [a-z]{1,3} ( \"-\"\n [a-z]+ )?"),
                 {"hi Bob", "hello Al-ice"}, {"hi bob", "hi Alice", "hey Bob", "hi "});
  expect_matches(grammar("root ::= \"\\x41\\u00e9\\U0001F600\\n\\t\\r\\\\\\\"\\[\\]\\-\""),
                 {"A\xC3\xA9\xF0\x9F\x98\x80\n\t\r\\\"[]-"}, {"A"});
  expect_matches(grammar("root ::= [^\\]a-c-] [-x] [\\u20ac-\\u20ad]"), {"d-\xE2\x82\xAC", "zx\xE2\x82\xAD"},
                 {"a-\xE2\x82\xAC", "]x\xE2\x82\xAC", "d-\xE2\x82\xAE"});
  expect_matches(grammar("root ::= \"a\"{2} \"b\"{1,} \"c\"{0,2} . ?"), {"aab", "aabbbcc\xC3\xA9", "aabcc"},
                 {"ab", "aac", "aabccccc"});
}

TEST(Gbnf, TokensAreMatchedAsAWhole) {
  const auto constraint = grammar("root ::= <[256]> \"!\" | !<[97]> \"?\"");
  ASSERT_TRUE(constraint.ok()) << constraint.status().to_string();
  ConstraintState state(*constraint);
  const TokenBits bits = mask_of(state, *small_trie());
  const TokenId end = static_cast<TokenId>(small_trie()->vocab_size()) - 1;
  for (TokenId id = 0; id <= end; ++id) EXPECT_EQ(has_bit(bits, id), id != 97 && id != end) << id;
  ASSERT_TRUE(state.accept(256).ok());
  EXPECT_TRUE(state.allows("!") && state.allows("?"));
  ASSERT_TRUE(state.rollback(1).ok());
  ASSERT_TRUE(state.accept(257).ok());
  EXPECT_TRUE(!state.allows("!") && state.allows("?"));
}

TEST(Gbnf, ErrorsHaveLineAndColumn) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "there is no rule named root"},
      {"root ::= x", "line 1, column 10: rule x is not defined"},
      {"root ::= \"a", "the grammar ends within a literal"},
      {"root ::=\n  (\"a\" | ", "line 2, column"},
      {"root ::= \"a\" )", "line 1, column 14: expected the end of the rule, found \")\""},
      {"root := \"a\"", "expected \"::=\" after root"},
      {"root ::= * \"a\"", "\"*\" repeats nothing"},
      {"root ::= \"a\"{3,2}", "least number is greater"},
      {"root ::= \"a\"{x}", "expected a number"},
      {"root ::= \"\\q\"", "unknown escape"},
      {"root ::= [z-a]", "ends before it begins"},
      {"root ::= []", "no characters"},
      {"root ::= <nosuch>", "not one token"},
      {"root ::= <[99999]>", "outside the vocabulary"},
      {"root ::= \"\\uD800\"", "not a character"},
      {"root ::= root", "matches no text"},
  };
  for (const auto& [text, reason] : cases) {
    const auto constraint = grammar(text);
    ASSERT_FALSE(constraint.ok()) << text;
    EXPECT_THAT(std::string(constraint.status().message()), HasSubstr(reason)) << text;
  }
  const std::string deep = "root ::= " + std::string(100'000, '(');
  EXPECT_THAT(std::string(grammar(deep).status().message()), HasSubstr("nested more than 200 deep"));
}

TEST(ConstraintRegex, AgreesWithTheStandardLibrary) {
  std::mt19937 random(5);
  const auto make = [&](auto& self, int depth) -> std::string {
    const auto below = [&] { return self(self, depth - 1); };
    switch (depth == 0 ? random() % 4 : random() % 9) {
      case 0: return "a";
      case 1: return "b";
      case 2: return random() % 2 ? "[ab]" : "[^a]";
      case 3: return random() % 2 ? "." : "c";
      case 4: return below() + below();
      case 5: return "(" + below() + "|" + below() + ")";
      case 6: return "(?:" + below() + ")*";
      case 7: return "(" + below() + ")" + (random() % 2 ? "?" : "+");
      default:
        return "(" + below() + "){" + std::to_string(random() % 3) + "," + std::to_string(2 + random() % 3) + "}";
    }
  };
  for (int i = 0; i < 300; ++i) {
    std::string pattern = make(make, 4);
    if (random() % 3 == 0) pattern = "^" + pattern;
    if (random() % 3 == 0) pattern += "$";
    if (random() % 4 == 0) pattern = "(" + pattern + "|^c$)";
    const std::regex reference(pattern);
    const auto constraint = regex(pattern);
    ASSERT_TRUE(constraint.ok()) << pattern << constraint.status().to_string();
    for (int j = 0; j < 60; ++j) {
      std::string text(random() % 7, 'a');
      for (char& c : text) c = static_cast<char>('a' + random() % 3);
      ASSERT_EQ(matches(*constraint, text), std::regex_match(text, reference)) << pattern << " on " << text;
    }
  }
}

TEST(ConstraintRegex, ClassesAndEscapes) {
  expect_matches(regex(R"(\d{3}-\w+\s?\u20ac?[\x41-\x43\]]\.$)"), {"123-ab A.", "000-_\xE2\x82\xAC].", "123-xB."},
                 {"12-ab A.", "123- A.", "123-abD."});
  expect_matches(regex(R"([^\W\d]+)"), {"ab", "_"}, {"a1", "-"});
  expect_matches(regex(R"(\p{Lu}\P{L}+)"),
                 {"\xC3\x89"
                  "12",
                  "A--"},
                 {"a1", "AA"});
  expect_matches(regex("a*?b{x"), {"aab{x", "b{x"}, {"ab"});
  expect_matches(regex("(?<year>[0-9]{4})"), {"2024"}, {"24"});
  const std::pair<const char*, const char*> refused[] = {{"(?=a)", "position 1: look-ahead is not supported"},
                                                         {"a(?<!b)", "look-behind"},
                                                         {R"((a)\1)", "a reference to a group"},
                                                         {R"(\bword)", "a word boundary"},
                                                         {"a++", "possessive"},
                                                         {"(?i)a", "a flag"},
                                                         {R"(\p{Greek})", "\\p{Greek}"}};
  for (const auto& [pattern, reason] : refused) {
    const auto constraint = regex(pattern);
    ASSERT_FALSE(constraint.ok()) << pattern;
    EXPECT_EQ(constraint.status().code(), Code::unsupported) << pattern;
    EXPECT_THAT(std::string(constraint.status().message()), HasSubstr(reason));
  }
  for (const char* pattern : {"(a", "a)", "[a", "*a", "a{3,2}", "[b-a]", "\\", "a**", "\\u12", "\xFF", "a{,3}"})
    EXPECT_EQ(regex(pattern).status().code(), Code::invalid_argument) << pattern;
}

TEST(ConstraintChoice, OneOfTheTexts) {
  const std::vector<std::string> texts = {"yes", "yes, always", "no", "", "\xE2\x82\xAC"};
  const auto constraint = Constraint::from_choices(texts, small_trie());
  expect_matches(constraint, texts, {"y", "yes,", "maybe"});
  EXPECT_FALSE(Constraint::from_choices({}, small_trie()).ok());
}

TEST(ConstraintSchema, NumbersWithinBounds) {
  std::mt19937 random(6);
  std::vector<std::pair<std::string, double>> numbers;
  for (int i = -130; i <= 130; ++i) {
    numbers.emplace_back(std::to_string(i), i);
    for (const char* f : {".1", ".05", ".25", ".99", ".5"})
      numbers.emplace_back(std::to_string(i) + f, i < 0 ? i - std::stod(f) : i + std::stod(f));
  }
  for (int n = 0; n < 250; ++n) {
    const bool is_integer = random() % 2, has_least = random() % 4, has_greatest = random() % 4 || !has_least;
    const auto bound = [&] {
      const int scale = random() % 2 ? 1 : random() % 2 ? 4 : 20;
      return (static_cast<int>(random() % 240) - 120) / static_cast<double>(scale);
    };
    double least = bound(), greatest = bound();
    if (least > greatest) std::swap(least, greatest);
    const bool excludes_least = random() % 2, excludes_greatest = random() % 2;
    const int divisor = is_integer && random() % 3 == 0 ? 1 + static_cast<int>(random() % 12) : 1;
    nlohmann::json s = {{"type", is_integer ? "integer" : "number"}};
    if (has_least) s[excludes_least ? "exclusiveMinimum" : "minimum"] = least;
    if (has_greatest) s[excludes_greatest ? "exclusiveMaximum" : "maximum"] = greatest;
    if (divisor > 1) s["multipleOf"] = divisor;
    const auto holds = [&](double v) {
      if (has_least && (excludes_least ? v <= least : v < least)) return false;
      if (has_greatest && (excludes_greatest ? v >= greatest : v > greatest)) return false;
      return !is_integer || (v == std::floor(v) && static_cast<int64_t>(v) % divisor == 0);
    };
    const auto constraint = schema(s.dump());
    bool any = false;
    for (const auto& [text, v] : numbers) {
      const bool is_plain = text.find('.') == text.npos;
      if (is_integer && !is_plain) continue;
      any = any || holds(v);
      if (constraint.ok()) {
        ASSERT_EQ(matches(*constraint, text), holds(v)) << s << " on " << text;
      }
    }
    if (any) {
      ASSERT_TRUE(constraint.ok()) << s << constraint.status().to_string();
    }
  }
}

TEST(ConstraintSchema, EveryKeywordIsEnforced) {
  const auto check = [](const char* text, const std::vector<std::string>& yes, const std::vector<std::string>& no) {
    SCOPED_TRACE(text);
    expect_matches(schema(text), yes, no);
  };
  check("{}", {"null", "[1,{\"a\":\"\\u00e9\"}]", "-0.5e3", "\"\xC3\xA9\""},
        {"", "01", "[1,]", "{\"a\"}", "\"\n\"", "\"\\uD800\""});
  check("true", {"1"}, {"x"});
  check(R"({"type":["integer","null"]})", {"1", "null"}, {"1.5", "\"\""});
  check(R"({"enum":["a",1,{"b":[2]}],"type":["string","object"]})", {"\"a\"", R"({"b":[2]})"}, {"1"});
  check(R"({"type":"string","minLength":2,"maxLength":3})", {R"("ab")", R"("\u00e9\ud83d\ude00x")"},
        {R"("a")", R"("abcd")"});
  check(R"({"type":"string","pattern":"b+$","maxLength":3})", {R"("b")", R"("abb")"}, {R"("ba")", R"("aabb")"});
  check(R"({"type":"string","pattern":"^(ab)+$","minLength":3,"maxLength":5})", {R"("abab")"},
        {R"("ab")", R"("ababab")"});
  check(R"({"type":"string","pattern":"^[a-z]{2,100000}$"})", {R"("ab")"}, {R"("a")", R"("aB")"});
  check(R"({"type":"string","format":"date"})", {R"("2024-02-29")", R"("2023-12-31")"},
        {R"("2023-02-29")", R"("2023-13-01")", R"("0000-01-01")"});
  check(R"({"type":"string","format":"date-time"})", {R"("2024-01-01T23:59:59.5Z")"}, {R"("2024-01-01 00:00:00Z")"});
  check(R"({"type":"string","format":"ipv6"})", {R"("::")", R"("1:2:3:4:5:6:7:8")", R"("fe80::1")"}, {R"("1::2::3")"});
  check(R"({"type":"string","format":"uuid"})", {R"("01234567-89ab-cdef-0123-456789abcdef")"}, {R"("01234567")"});
  check(R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":{"type":"null"},)"
        R"("minItems":1,"maxItems":3})",
        {"[1]", R"([1,"a"])", R"([1,"a",null])"}, {"[]", "[\"a\"]", R"([1,"a",2])", R"([1,"a",null,null])"});
  check(R"({"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"integer"}],)"
        R"("additionalItems":false,"type":"array"})",
        {"[]", "[1]"}, {"[1,2]", "[\"a\"]"});
  check(R"({"type":"array","items":{"enum":[1,2,3]},"uniqueItems":true,"minItems":2})", {"[1,2]", "[3,1,2]"},
        {"[1]", "[1,1]"});
  check(R"({"type":"array","items":{"type":"integer"},"minItems":300,"maxItems":301})", {}, {"[]", "[1,2]"});
  check(R"({"type":"object","properties":{"a":{"type":"integer"},"b":true},"required":["b"]})",
        {R"({"b":1})", R"({"a":1,"b":[]})"}, {"{}", R"({"a":1})", R"({"b":1,"c":2})"});
  check(R"({"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"null"}})",
        {"{}", R"({"a":1})", R"({"a":1,"ab":null})", R"({"b":null,"c":null})"},
        {R"({"b":1})", R"({"a":null})", R"({"b":null,"a":1})"});
  check(R"({"type":"object","patternProperties":{"^n":{"type":"integer"},"s$":{"type":["integer","string"]}},)"
        R"("additionalProperties":false})",
        {"{}", R"({"n":1})", R"({"ns":1,"xs":"a"})"}, {R"({"ns":"a"})", R"({"x":1})"});
  check(R"({"type":"object","propertyNames":{"pattern":"^[a-c]+$","maxLength":2},)"
        R"("additionalProperties":{"type":"integer"}})",
        {"{}", R"({"ab":1})"}, {R"({"d":1})", R"({"abc":1})"});
  check(R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3}},"minProperties":2,)"
        R"("maxProperties":2})",
        {R"({"a":1,"b":2})", R"({"a":1,"c":3})", R"({"b":2,"c":3})"}, {"{}", R"({"a":1})", R"({"a":1,"b":2,"c":3})"});
  check(R"({"anyOf":[{"type":"integer","minimum":5},{"type":"string"}],"type":["integer","string"],"maximum":7})",
        {"5", "7", "\"a\""}, {"4", "8"});
  check(R"({"oneOf":[{"type":"object","properties":{"k":{"const":"a"},"v":{"type":"integer"}},"required":["k","v"]},
                     {"type":"object","properties":{"k":{"const":"b"}},"required":["k"]}]})",
        {R"({"k":"a","v":1})", R"({"k":"b"})"}, {R"({"k":"a"})"});
  check(R"({"allOf":[{"type":"integer"},{"minimum":3},{"maximum":4}]})", {"3", "4"}, {"2", "5"});
  check(R"({"$ref":"#/$defs/tree","$defs":{"tree":{"type":"object","properties":{"v":{"type":"integer"},)"
        R"("kids":{"type":"array","items":{"$ref":"#/$defs/tree"}}},"required":["v"]}}})",
        {R"({"v":1})", R"({"v":1,"kids":[{"v":2,"kids":[]}]})"}, {R"({"kids":[]})"});
}

TEST(ConstraintSchema, RefusalsNameKeywordAndPlace) {
  const std::tuple<const char*, Code, const char*> cases[] = {
      {R"({"not":{}})", Code::unsupported, "the root: not is not supported"},
      {R"({"properties":{"a":{"if":{},"then":{}}}})", Code::unsupported, "/properties/a: if is not supported"},
      {R"({"type":"array","contains":{}})", Code::unsupported, "contains"},
      {R"({"dependentRequired":{}})", Code::unsupported, "dependentRequired"},
      {R"({"nullable":true})", Code::unsupported, "nullable"},
      {R"({"format":"regex"})", Code::unsupported, "format \"regex\""},
      {R"({"type":"number","multipleOf":0.1})", Code::unsupported, "multipleOf"},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", Code::unsupported, "oneOf whose alternatives 0 and 1"},
      {R"({"$ref":"other.json"})", Code::unsupported, "another document"},
      {R"({"madeUp":1})", Code::unsupported, "madeUp"},
      {R"({"type":"array","uniqueItems":true})", Code::unsupported, "uniqueItems"},
      {R"x({"type":"string","pattern":"(?=a)"})x", Code::unsupported,
       "pattern: regular expression: position 1: look-ahead"},
      {R"({"type":"object","minProperties":3})", Code::unsupported, "minProperties"},
      {R"({"type":"strin"})", Code::invalid_argument,
       "type: names an unknown type, \"strin\"; did you mean \"string\"?"},
      {R"({"items":3})", Code::invalid_argument, "items: must be a schema"},
      {R"({"$ref":"#/nowhere"})", Code::invalid_argument, "leads nowhere"},
      {R"({"$ref":"#"})", Code::invalid_argument, ""},
      {R"({"type":"array","minItems":1000000000000})", Code::unsupported, "minItems of 4294967295 or more is not"},
      {R"({"type":"integer","minimum":5,"maximum":4})", Code::invalid_argument, "matches no text"},
      {R"({"type":)", Code::invalid_argument, "not JSON at byte"},
      {"3", Code::invalid_argument, "a schema is an object"},
  };
  for (const auto& [text, code, reason] : cases) {
    const auto constraint = schema(text);
    if (std::string(text) == R"({"$ref":"#"})") {  // says nothing, so that everything holds
      EXPECT_TRUE(constraint.ok());
      continue;
    }
    ASSERT_FALSE(constraint.ok()) << text;
    EXPECT_EQ(constraint.status().code(), code) << text << constraint.status().to_string();
    EXPECT_THAT(std::string(constraint.status().message()), HasSubstr(reason)) << text;
  }
  EXPECT_FALSE(schema(std::string(1'000'000, '[')).ok());
}

}  // namespace
}  // namespace redline
