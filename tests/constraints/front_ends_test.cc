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
  const std::pair<const char*, const char*> refused[] = {{"(?=^a)", "position 1: ^ within look-ahead is not supported"},
                                                         {"a(?<!b$)", "$ within look-behind"},
                                                         {R"((a)\1)", "a reference to a group"},
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

// The reference is std::regex, which has look-ahead and word boundaries; look-behind is checked by cases.
TEST(ConstraintRegex, LookAroundMatchesTheSameTextsAsStdRegex) {
  std::mt19937 random(11);
  for (const char* pattern : {"(?=a)[a-c]+", "(?!ab)[a-c]*", "((?!ab)[a-c])*", "(?=.*b)(?=.*c)[a-c]+", "(?!.*aa)[a-c]+",
                              "[a-c]*(?=bc)[a-c]{2}", "(?=(?!ab)a)[a-c]+", "(?!(?!a)b)[a-c]*", "a+(?!b)[a-c]?",
                              "[ac ]+\\b[ac ]*", "(a\\B|c)+", "(?=a|b$)[a-c]*"}) {
    const std::regex reference(pattern);
    const auto constraint = regex(pattern);
    ASSERT_TRUE(constraint.ok()) << pattern << constraint.status().to_string();
    for (int j = 0; j < 300; ++j) {
      std::string text(random() % 7, 'a');
      for (char& c : text) c = "abc "[random() % 4];
      ASSERT_EQ(matches(*constraint, text), std::regex_match(text, reference)) << pattern << " on \"" << text << "\"";
    }
  }
  expect_matches(regex("[a-c]*(?<=ab)c+(?<!ccc)"), {"abc", "cabcc"}, {"ac", "abccc", "bbc"});
  expect_matches(regex("(?<!x)\xC3\xA9(?=\xE2\x82\xAC).*"), {"\xC3\xA9\xE2\x82\xAC"},
                 {"\xC3\xA9", "x\xC3\xA9\xE2\x82\xAC"});
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

TEST(ConstraintSchema, KeywordsThatCombineSchemasAreEnforced) {
  const auto check = [](const char* text, const std::vector<std::string>& yes, const std::vector<std::string>& no) {
    SCOPED_TRACE(text);
    expect_matches(schema(text), yes, no);
  };
  check(R"({"not":{"type":"string"}})", {"1", "null", "[]"}, {"\"a\""});
  check(R"({"type":"integer","not":{"enum":[3,4.0,"a"]}})", {"2", "5", "33"}, {"3", "4"});
  check(R"({"type":"number","not":{"type":"integer"}})", {"1.5", "-0.25"}, {"1", "2.0"});
  check(R"({"type":"string","not":{"pattern":"^a"}})", {"\"\"", "\"ba\""}, {"\"a\"", "\"ab\""});
  check(R"({"type":"string","not":{"minLength":3}})", {"\"ab\""}, {"\"abc\""});
  check(R"({"type":"object","properties":{"a":true,"b":true},"not":{"required":["a","b"]}})",
        {"{}", R"({"a":1})", R"({"b":1})"}, {R"({"a":1,"b":1})"});
  check(R"({"type":"array","items":{"type":"integer"},"not":{"items":{"minimum":5}}})", {"[1]", "[7,1,7]"},
        {"[]", "[7]", "[7,8]"});
  check(R"({"type":"object","properties":{"k":{"enum":["a","b"]},"v":{"type":"integer"}},"required":["k"],)"
        R"("if":{"properties":{"k":{"const":"a"}}},"then":{"required":["v"]},"else":{"properties":{"v":false}}})",
        {R"({"k":"a","v":1})", R"({"k":"b"})"}, {R"({"k":"a"})", R"({"k":"b","v":1})"});
  check(R"({"properties":{"a":{},"b":{},"c":{}},"type":"object","dependentRequired":{"a":["b"]},)"
        R"("dependencies":{"b":["c"]}})",
        {"{}", R"({"c":1})", R"({"b":1,"c":1})", R"({"a":1,"b":1,"c":1})"}, {R"({"a":1})", R"({"a":1,"b":1})"});
  check(
      R"({"properties":{"a":{},"b":{}},"type":"object","dependentSchemas":{"a":{"properties":{"b":{"type":"null"}}}}})",
      {R"({"b":1})", R"({"a":1,"b":null})", R"({"a":1})"}, {R"({"a":1,"b":1})"});
  check(R"({"oneOf":[{"type":"integer"},{"type":"number","minimum":2}]})", {"1", "2.5"}, {"1.5", "2", "3"});
  check(R"({"type":"object","properties":{"a":true,"b":true},"oneOf":[{"required":["a"]},{"required":["b"]}]})",
        {R"({"a":1})", R"({"b":1})"}, {"{}", R"({"a":1,"b":1})"});
  check(R"({"type":"array","contains":{"type":"integer"},"items":{"type":["integer","null"]},"minContains":2,)"
        R"("maxContains":3})",
        {"[1,2]", "[null,1,null,2,3]"}, {"[]", "[1]", "[1,2,3,4]", "[null,1]"});
  check(R"({"type":"array","items":{"type":"integer"},"contains":{"minimum":5},"maxItems":2})", {"[5]", "[1,7]"},
        {"[1]", "[]", "[1,2,7]"});
  check(R"({"type":"array","items":{"enum":["a","b","c","d","e","f","g","h","i","j"]},"uniqueItems":true})",
        {"[]", R"(["a"])", R"(["b","j"])"}, {R"(["a","a"])"});
  check(R"({"type":"array","items":{"type":["boolean","null"]},"uniqueItems":true})", {"[true,null]", "[false,true]"},
        {"[null,null]"});
  check(R"({"type":"number","multipleOf":0.01})", {"1", "0.07", "19.99", "-2.50"}, {"0.075", "1.001"});
  check(R"({"type":"number","multipleOf":0.25,"minimum":1})", {"1", "1.25", "3.5"}, {"0.25", "1.3"});
  check(R"({"allOf":[{"type":"object","properties":{"a":{}}},{"properties":{"b":{}}}],"unevaluatedProperties":false})",
        {"{}", R"({"a":1,"b":1})"}, {R"({"c":1})"});
  check(R"({"prefixItems":[{"type":"integer"}],"type":"array","anyOf":[{"prefixItems":[true,{"type":"null"}]}],)"
        R"("unevaluatedItems":false})",
        {"[1]", "[1,null]"}, {"[1,2]", "[1,null,3]"});
  check(R"({"type":"object","propertyNames":{"anyOf":[{"pattern":"^a"},{"const":"b"}]},"maxProperties":1})",
        {R"({"ab":1})", R"({"b":1})"}, {R"({"c":1})"});
  check(R"({"type":["string"],"nullable":true,"maxLength":1})", {"null", "\"a\""}, {"1"});
  check(R"({"$id":"http://x.org/a","$defs":{"n":{"$id":"nested","$anchor":"here","type":"null"},)"
        R"("o":{"$anchor":"here","type":"integer"}},"anyOf":[{"$ref":"nested#here"},{"$ref":"#here"}]})",
        {"null", "1"}, {"\"a\""});
  check(R"({"$dynamicRef":"#x","$defs":{"n":{"$dynamicAnchor":"x","type":"null"}}})", {"null"}, {"1"});
  check(R"({"type":"number","minimum":1,"exclusiveMinimum":true})", {"2"}, {"1"});
}

// Unknown keywords and formats are annotations, as JSON Schema has it.
TEST(ConstraintSchema, AnnotationsAreNotRefused) {
  expect_matches(
      schema(R"({"type":"object","discriminator":{"propertyName":"k"},"markdownDescription":"m","x-a":1,)"
             R"("propertyOrdering":["k"],"$comment":"c","deprecated":true,"properties":{"k":{"type":"integer",)"
             R"("format":"int64","enumDescriptions":[]},"p":{"type":"string","format":"password"}}})"),
      {R"({"k":1,"p":"x"})"}, {R"({"k":"1"})"});
}

TEST(ConstraintSchema, FormatsOfJsonSchema) {
  const std::tuple<const char*, std::vector<std::string>, std::vector<std::string>> cases[] = {
      {"uri", {"mailto:a@b.c", "urn:isbn:1", "http://a.org/b?c#d"}, {"a", "://", "http://a b"}},
      {"uri-reference", {"", "a/b", "/a", "?q", "#f", "http://a.org"}, {"://", "a b", "\\\\"}},
      {"hostname", {"a.org", "xn--ihqwcrb4cv8a8dqg056pqjye", "a-b.c"}, {"-a", "a-", "ab--c", "a..b"}},
      {"json-pointer", {"", "/a~0b/c"}, {"a", "/~2"}},
      {"regex", {"^a+$", "[a-z]{2}", "(ab)?"}, {"*", "\\\\", "(", "[a"}},
      {"uri-template", {"http://a.org/{b}"}, {"http://a.org/{"}},
      {"email", {"a@b.org"}, {"a", "@b.org"}},
      {"unknown", {"anything"}, {}}};
  for (const auto& [format, yes, no] : cases) {
    const auto constraint = schema(fmt::format(R"({{"type":"string","format":"{}"}})", format));
    ASSERT_TRUE(constraint.ok()) << constraint.status().to_string();
    for (const std::string& text : yes) EXPECT_TRUE(matches(*constraint, "\"" + text + "\"")) << format << " " << text;
    for (const std::string& text : no) EXPECT_FALSE(matches(*constraint, "\"" + text + "\"")) << format << " " << text;
  }
}

TEST(ConstraintSchema, WhiteSpaceIsWhatModelsWrite) {
  const char* text =
      R"({"type":"object","properties":{"a":{"type":"array","items":{"type":"integer"}},"b":{"const":{"c":[1,2]}}}})";
  const std::vector<std::string> spaced = {R"({"a": [1, 2], "b": {"c": [1, 2]}})",
                                           "{\n  \"a\": [\n    1,\n    2\n  ]\n}", "{\r\n\t\"a\": []\r\n}",
                                           "{ \"a\": [ 1 ] }", R"({"a":[1,2]})"};
  const auto by_default = schema(text, {});
  expect_matches(by_default, spaced,
                 {"{\"a\":  [1]}", "{\"a\" : [1]}", "{\"a\": [1] , \"b\": {\"c\": [1, 2]}}", "{\n\n\"a\": [1]}", " {}",
                  "{}\n", "{\n" + std::string(65, ' ') + "\"a\": []}"});
  expect_matches(schema(text), {R"({"a":[1,2]})"}, {spaced[0], spaced[1], spaced[3]});
  expect_matches(schema("{}", {}), {R"({"x": [true, {"y": "z"}]})"}, {});
}

TEST(ConstraintSchema, AdditionalMembersByDefaultOrOnRequest) {
  const char* text = R"({"type":"object","properties":{"a":{"type":"integer"}}})";
  expect_matches(schema(text), {R"({"a":1})"}, {R"({"a":1,"b":2})"});
  expect_matches(schema(text, {.is_compact = true, .allows_additional = true}), {R"({"a":1,"b":2})", R"({"c":[]})"},
                 {R"({"a":"1"})"});
  expect_matches(schema(R"({"type":"object","properties":{"a":{}},"additionalProperties":false})",
                        {.is_compact = true, .allows_additional = true}),
                 {R"({"a":1})"}, {R"({"b":2})"});
}

TEST(ConstraintSchema, RelaxedNamesWhatIsNotEnforced) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type":"array","items":{"type":"string"},"uniqueItems":true})", "uniqueItems"},
      {R"({"oneOf":[{"patternProperties":{"a":{"type":"null"}}},{"type":"object"}]})", "oneOf"},
      {R"({"$ref":"other.json"})", "$ref"},
      {R"({"type":"object","minProperties":3})", "minProperties"},
      {R"({"not":{"uniqueItems":true}})", "not"}};
  for (const auto& [text, keyword] : cases) {
    EXPECT_EQ(schema(text).status().code(), Code::unsupported) << text;
    const auto relaxed = schema(text, {.is_relaxed = true});
    ASSERT_TRUE(relaxed.ok()) << text << relaxed.status().to_string();
    EXPECT_EQ((*relaxed)->unenforced(), std::set<std::string>{keyword}) << text;
  }
  EXPECT_TRUE((*schema(R"({"type":"integer"})", {.is_relaxed = true}))->unenforced().empty());
}

TEST(ConstraintSchema, NestedArraysAndObjectsGrowByTheSameStates) {
  const auto states = [](const char* begin, const char* end, int depth) {
    std::string text = R"({"type":"null"})";
    for (int i = 0; i < depth; ++i) text = begin + text + end;
    const auto constraint = schema(text, {});
    EXPECT_TRUE(constraint.ok()) << depth << constraint.status().to_string();
    return constraint.ok() ? (*constraint)->automaton().num_states() : 0;
  };
  for (const auto& [begin, end] :
       {std::pair(R"({"type":"array","items":)", "}"), std::pair(R"({"type":"object","properties":{"a":)", "}}")}) {
    const size_t few = states(begin, end, 10), many = states(begin, end, 40);
    EXPECT_LT(many, 8 * few);
  }
}

TEST(ConstraintSchema, RefusalsNameKeywordAndPlace) {
  const std::tuple<const char*, Code, const char*> cases[] = {
      {R"({"not":{}})", Code::invalid_argument, "matches no text"},
      {R"({"properties":{"a":{"not":{"format":"date"}}}})", Code::unsupported,
       "/properties/a: not of format is not supported"},
      {R"({"type":"array","uniqueItems":true})", Code::unsupported, "uniqueItems"},
      {R"({"oneOf":[{"propertyNames":{"maxLength":1}},{"type":"object"}]})", Code::unsupported,
       "oneOf whose alternatives 0 and 1"},
      {R"({"$ref":"other.json"})", Code::unsupported, "another document"},
      {R"x({"type":"string","pattern":"(a)\\1"})x", Code::unsupported,
       "pattern: regular expression: position 4: a reference to a group"},
      {R"({"type":"number","multipleOf":0.123456789})", Code::unsupported, "multipleOf"},
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
