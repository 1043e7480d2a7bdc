// Grammars in Lark's notation: what they match, and what they refuse by name.
#include "constraints/lark.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <random>

#include "constraints/constraint_harness.h"

namespace redline {
namespace {

using ::testing::HasSubstr;

ConstraintResult lark(std::string_view text, bool in_json_string = false) {
  const ConstraintLimits limits;
  CompileDeadline deadline(limits);
  REDLINE_ASSIGN(Grammar grammar, parse_lark(text, deadline));
  if (in_json_string) {
    Grammar outer;
    outer.root = outer.add_rule("root");
    outer.define(outer.root, outer.embed(grammar, true));
    return Constraint::compile(outer, small_trie(), limits, deadline);
  }
  return Constraint::compile(grammar, small_trie(), limits, deadline);
}

struct LarkCase {
  const char* grammar;
  std::vector<std::string> accepted, refused;
};

// The shape of the grammar of a tool that takes patches.
constexpr const char* kPatchGrammar = R"lark(
start: begin hunk+ end
begin: "*** Begin Edit" LF
end: "*** End Edit" LF?

hunk: new_file | drop_file | change_file   // one file each
new_file: "*** New File: " filename LF added_line+
drop_file: "*** Drop File: " filename LF
change_file: "*** Change File: " filename LF move? change?
filename: /(.+)/
added_line: "+" /(.*)/ LF -> line

move: "*** Rename: " filename LF
change: (context | line)+ eof?
context: ("@@" | "@@ " /(.+)/) LF
line: ("+" | "-" | " ") /(.*)/ LF
eof: "*** End of File" LF

%import common.LF
)lark";

const LarkCase kLarkCases[] = {
    {kPatchGrammar,
     {"*** Begin Edit\n*** New File: a.txt\n+one\n+\n*** End Edit",
      "*** Begin Edit\n*** Change File: src/a.cc\n*** Rename: b.cc\n@@ void f()\n-old\n+new\n same\n*** End of File\n"
      "*** Drop File: c\n*** End Edit\n"},
     {"*** Begin Edit\n*** End Edit", "*** Begin Edit\n*** New File: a.txt\n*** End Edit",
      "*** Begin Edit\n*** New File: \n+one\n*** End Edit", "*** New File: a.txt\n+one\n"}},
    {"start: sum\n?sum: product | sum \"+\" product -> add | sum \"-\" product -> sub\n?product: atom\n"
     "    | product \"*\" atom  -> mul\n?atom: NUMBER -> number | \"(\" sum \")\"\n%import common.NUMBER\n%import "
     "common.WS_INLINE\n%ignore WS_INLINE",
     {"1", "1+2*(3 - 4)", " 1 +\t2 ", "1.5e3*2"},
     {"", "1+", "+1", "1 2", "(1"}},
    {"start: \"a\"~2..3 \"b\"~2 [\"c\"] (\"d\" | \"e\")? \"f\"*",
     {"aabb", "aaabbcdff", "aabbe"},
     {"abb", "aaaabb", "aab"}},
    {"start: KEY \"=\" VALUE\nKEY.2: LETTER (LETTER | \"_\" | DIGIT)*\nVALUE: /[0-9]+/ | \"0x\"i \"0\"..\"9\"\n"
     "%import common (LETTER, DIGIT)",
     {"a_1=7", "B=0X5", "c=0x0"},
     {"1=7", "a=", "a=0x"}},
    {"!start: _item (\",\" _item)*\n?_item: \"\\u00e9\" | \"\\\"\" | \"\\x41\" | /\\//\n", {"é,\",A", "/"}, {"e", "a"}},
    {"start: /a.b/s \"x\"\n", {"a\nbx", "a bx"}, {"abx"}},
    {"start: list\nlist: | list \"a\"", {"", "a", "aaa"}, {"b"}},
    {"start: ESCAPED_STRING \";\" CNAME (SIGNED_INT | SIGNED_FLOAT) NEWLINE COMMENT\n%import "
     "common.ESCAPED_STRING\n%import common.CNAME\n%import common.SIGNED_INT\n%import common.SIGNED_FLOAT\n%import "
     "common.NEWLINE\n%import common.C_COMMENT -> COMMENT",
     {"\"a\\\"b\";x_1-12\n/* a * b */", "\"\";y+.5\r\n\n/**/"},
     {"\"a\nb\";x1\n/**/", "\"\";y1\n/* */ */"}},
    {"// a comment\nstart: \"a\"  # another one\n     | \"b\"\n\n", {"a", "b"}, {"", "ab"}},
};

TEST(Lark, MatchesTheTextsOfItsLanguage) {
  for (const LarkCase& one : kLarkCases) {
    const auto constraint = lark(one.grammar);
    ASSERT_TRUE(constraint.ok()) << one.grammar << "\n" << constraint.status().to_string();
    for (const std::string& text : one.accepted) EXPECT_TRUE(matches(*constraint, text)) << one.grammar << "\n" << text;
    for (const std::string& text : one.refused) EXPECT_FALSE(matches(*constraint, text)) << one.grammar << "\n" << text;
  }
}

TEST(Lark, NamesWhatItCannotTranslate) {
  const std::pair<const char*, const char*> cases[] = {
      {"start: a{\"x\"}\na{y}: y", "line 1, column 9: templates are not supported: a"},
      {"%declare X\nstart: X", "line 1, column 1: %declare is not supported"},
      {"%extend x: \"a\"", "%extend is not supported"},
      {"%import python.NAME\nstart: NAME", "only common can be imported, not python"},
      {"%import .other.NAME\nstart: NAME", "only common can be imported"},
      {"%import common.NOTHING\nstart: NOTHING", "common has no terminal NOTHING"},
      {"start: /(a)\\1/", "line 1, column 8: /(a)\\1/: "},
      {"start: /a/x", "flag x of a regular expression is not supported"},
      {"start: x", "line 1, column 8: rule x is not defined"},
      {"start: X", "terminal X is not defined"},
      {"rule: \"a\"", "there is no rule named start"},
      {"start: \"a\"\nstart: \"b\"", "line 2, column 1: start is defined twice"},
      {"start: A\nA: \"a\" A?", "terminal A uses itself"},
      {"start: A\nA: b\nb: \"a\"", "terminal A uses the rule b"},
      {"start: \"a", "line 1, column 8: the string does not end"},
      {"start: /a", "the regular expression does not end"},
      {"start: (\"a\"", "expected \")\", found the end"},
      {"start: \"a\"~3..2", "~3..2: the least number is greater than the greatest"},
      {"start \"a\"", "expected \":\" after start"},
      {"start: %json {}", "%json {} within a rule is not supported"},
      {"start: \"b\"..\"a\"", "a range goes from one character to a later one"},
      {"start: \"\\q\"", "unknown escape"},
  };
  for (const auto& [text, message] : cases) {
    const auto result = lark(text);
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_THAT(result.status().message(), HasSubstr(message));
    EXPECT_TRUE(result.status().code() == Code::invalid_argument || result.status().code() == Code::unsupported);
  }
  EXPECT_FALSE(lark("start: " + std::string(300, '(') + "\"a\"" + std::string(300, ')')).ok());
}

// Within a JSON string the same texts are spelled with escapes.
TEST(Lark, EmbeddedInAJsonString) {
  std::mt19937 random(5);
  for (const LarkCase& one : kLarkCases) {
    const auto plain = lark(one.grammar), spelled = lark(one.grammar, true);
    ASSERT_TRUE(plain.ok() && spelled.ok()) << one.grammar;
    for (const std::string& text : one.accepted) {
      const std::string json = nlohmann::json(text).dump();
      EXPECT_TRUE(matches(*spelled, json.substr(1, json.size() - 2))) << json;
    }
  }
  const auto edits = lark("start: (\"a\" | /[\\x00-\\x1f\"\\\\]/)~1..6", true);
  ASSERT_TRUE(edits.ok());
  for (int round = 0; round < 20; ++round) {
    const std::string text = random_walk(*edits, random, 100);
    const auto json = nlohmann::json::parse("\"" + text + "\"", nullptr, false);
    ASSERT_TRUE(json.is_string()) << text;
  }
}

}  // namespace
}  // namespace redline
