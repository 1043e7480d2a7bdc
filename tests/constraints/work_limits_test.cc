// Bounds of the work of constraints: minimal automata of lists of texts, steps and texts of ambiguous grammars. Tests
// count states and steps, never time.
#include <random>

#include "constraint_harness.h"

namespace redline {
namespace {

TEST(ConstraintWork, AListOfTextsIsAMinimalAutomaton) {
  std::vector<std::string> alike, random_texts;
  std::mt19937 random(7);
  for (int i = 0; i < 10'000; ++i) {
    alike.push_back("The answer is number " + std::to_string(i));
    alike.back().resize(100, 'x');
  }
  for (int i = 0; i < 500; ++i) {
    random_texts.emplace_back();
    for (int n = 0; n < 100; ++n) random_texts.back() += static_cast<char>('a' + random() % 26);
  }
  const auto small = Constraint::from_choices(alike, small_trie());
  ASSERT_TRUE(small.ok()) << small.status().to_string();
  EXPECT_LE((*small)->automaton().num_states(), 200u) << "all numbers of one length continue in the same way";
  const auto large = Constraint::from_choices(random_texts, small_trie());
  ASSERT_TRUE(large.ok()) << large.status().to_string();
  EXPECT_LE((*large)->automaton().num_states(), 500u * 100 + 10) << "one state for each byte";
  for (const auto& [constraint, texts] : {std::pair(*small, &alike), std::pair(*large, &random_texts)}) {
    EXPECT_TRUE(matches(constraint, texts->front()));
    EXPECT_TRUE(matches(constraint, texts->back()));
    EXPECT_FALSE(matches(constraint, texts->front() + "x"));
    EXPECT_FALSE(matches(constraint, texts->front().substr(0, 99)));
  }
}

TEST(ConstraintWork, AMinimalAutomatonMatchesTheListAndNothingElse) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::string> texts;
    for (size_t i = 0; i < 1 + random() % 20; ++i) {
      texts.emplace_back();
      for (size_t n = random() % 6; n > 0; --n) texts.back() += static_cast<char>('a' + random() % 3);
    }
    const auto constraint = Constraint::from_choices(texts, small_trie());
    ASSERT_TRUE(constraint.ok()) << constraint.status().to_string();
    for (int t = 0; t < 200; ++t) {
      std::string text;
      for (size_t n = random() % 7; n > 0; --n) text += static_cast<char>('a' + random() % 3);
      const bool listed = std::find(texts.begin(), texts.end(), text) != texts.end();
      EXPECT_EQ(matches(*constraint, text), listed) << text;
    }
  }
}

TEST(ConstraintWork, AnEnumOfManyValuesIsNotComparedWithItself) {
  std::string values;
  for (int i = 0; i < 20'000; ++i) values += (i > 0 ? ",\"" : "\"") + std::string("value ") + std::to_string(i) + "\"";
  const auto constraint = schema("{\"enum\": [" + values + "]}");
  ASSERT_TRUE(constraint.ok()) << constraint.status().to_string();
  EXPECT_LE((*constraint)->automaton().num_states(), 2000u);
  EXPECT_TRUE(matches(*constraint, "\"value 19999\""));
  EXPECT_FALSE(matches(*constraint, "\"value 20000\""));
}

// Every position of the text has states of all parses before it.
constexpr const char* kAmbiguous =
    "root ::= s\n"
    "s ::= \"a\" s \"b\" s | \"a\" s | t\n"
    "t ::= [a-z] t u | [a-z] u t | [a-z]\n"
    "u ::= t t | u t | \"x\"\n";

TEST(ConstraintWork, AStepThatTakesTooMuchWorkIsAnErrorWithTheLimit) {
  ConstraintLimits limits;
  limits.max_step_work = 20'000;
  const auto constraint = Constraint::from_grammar(kAmbiguous, small_trie(), limits);
  ASSERT_TRUE(constraint.ok()) << constraint.status().to_string();
  ConstraintState state(*constraint);
  TokenBits bits((*constraint)->trie().num_words());
  Status status;
  uint64_t before = 0;
  for (int i = 0; i < 200 && status.ok(); ++i) {
    status = state.fill_mask(bits);
    EXPECT_LE(state.work_done() - before, limits.max_step_work + 20'000) << "a step ends soon after its limit";
    before = state.work_done();
    if (status.ok()) status = state.accept(static_cast<TokenId>('a'));
    before = state.work_done();
  }
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_NE(status.message().find("max_step_work"), std::string::npos) << status.message();
}

TEST(ConstraintWork, ATextThatTakesTooMuchWorkIsAnErrorWithTheLimit) {
  ConstraintLimits limits;
  limits.max_step_work = 5'000'000;
  limits.max_text_work = 100;
  const auto constraint = Constraint::from_grammar(kAmbiguous, small_trie(), limits);
  ASSERT_TRUE(constraint.ok()) << constraint.status().to_string();
  ConstraintState state(*constraint);
  TokenBits bits((*constraint)->trie().num_words());
  const Status status = state.fill_mask(bits);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_NE(status.message().find("max_text_work"), std::string::npos) << status.message();
}

TEST(ConstraintWork, ALongRegularExpressionIsRefusedWithItsLength) {
  const auto constraint = regex(std::string(70'000, 'a'));
  ASSERT_FALSE(constraint.ok());
  EXPECT_NE(constraint.status().message().find("70000 bytes; at most 65536"), std::string::npos)
      << constraint.status().message();
}

TEST(ConstraintWork, OrdinaryConstraintsStayFarBelowTheLimits) {
  const char* text =
      R"({"type": "object", "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"type":
      "string"}}, "size": {"type": "number"}}, "required": ["name", "tags"], "additionalProperties": false})";
  const auto constraint = schema(text);
  ASSERT_TRUE(constraint.ok()) << constraint.status().to_string();
  ConstraintState state(*constraint);
  TokenBits bits((*constraint)->trie().num_words());
  uint64_t most = 0;
  for (const char c : std::string(R"({"name":"abc","tags":["x","y"],"size":12.5})")) {
    const uint64_t before = state.work_done();
    ASSERT_TRUE(state.fill_mask(bits).ok());
    ASSERT_TRUE(state.accept(static_cast<TokenId>(static_cast<uint8_t>(c))).ok()) << c;
    most = std::max(most, state.work_done() - before);
  }
  EXPECT_LE(most, ConstraintLimits().max_step_work / 100);
}

}  // namespace
}  // namespace redline
