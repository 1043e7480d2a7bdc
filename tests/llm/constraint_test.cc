// Requests with an output constraint.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "redline/text.h"
#include "support/bundled.h"

namespace redline {
namespace {

using ::testing::HasSubstr;
using Kind = OutputConstraint::Kind;

std::unique_ptr<TextEngine> open_constraint() {
  TextEngineOptions options;
  options.threads = 2;
  options.dtype = ComputeType::kF32;  // a sequence has the same bits in any batch
  auto engine = TextEngine::open(kTales, options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return std::move(engine).value();
}

GenerateRequest constraint_request(const TextEngine& engine, OutputConstraint constraint, uint64_t seed = 1) {
  GenerateRequest r;
  r.prompt = engine.encode("Once upon a time").value();
  r.sampling.temperature = 3;
  r.sampling.seed = seed;
  r.max_tokens = 200;
  r.constraint = std::move(constraint);
  return r;
}

TEST(ConstrainedGeneration, TextsMatchAndEnd) {
  const auto engine = open_constraint();
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto result =
        engine->generate(constraint_request(*engine, {Kind::kRegex, "[A-Z][a-z]{2,9} [0-9]{1,3}\\.", {}}, seed))
            .value();
    EXPECT_EQ(result.reason, FinishReason::kStop);
    EXPECT_TRUE(std::regex_match(result.text, std::regex("[A-Z][a-z]{2,9} [0-9]{1,3}\\."))) << result.text;
    const auto choice =
        engine->generate(constraint_request(*engine, {Kind::kChoice, "", {"yes", "no", "yes, I am"}}, seed)).value();
    EXPECT_THAT(choice.text, ::testing::AnyOf("yes", "no", "yes, I am"));
  }
  const auto json = engine->generate(constraint_request(
      *engine, {Kind::kJsonSchema,
                R"({"type":"object","properties":{"a":{"type":"string","maxLength":9},"b":{"type":"integer"}},)"
                R"("required":["a","b"]})",
                {}}));
  ASSERT_TRUE(json.ok()) << json.status().to_string();
  EXPECT_TRUE(nlohmann::json::parse(json->text)["b"].is_number_integer()) << json->text;
  const auto grammar = engine->generate(
      constraint_request(*engine, {Kind::kGrammar, "root ::= list\nlist ::= list \";\" | [a-c]+ \"!\"", {}}));
  ASSERT_TRUE(grammar.ok()) << grammar.status().to_string();
}

TEST(ConstrainedGeneration, SameSeedSameTextAloneAndTogether) {
  const auto engine = open_constraint();
  const OutputConstraint constraint{Kind::kRegex, "[a-z ]{20,60}", {}};
  std::vector<std::string> alone;
  for (uint64_t seed = 0; seed < 4; ++seed)
    alone.push_back(engine->generate(constraint_request(*engine, constraint, seed)).value().text);
  std::vector<std::shared_ptr<Generation>> running;
  for (uint64_t seed = 0; seed < 4; ++seed)
    running.push_back(engine->submit(constraint_request(*engine, constraint, seed)).value());
  for (uint64_t seed = 0; seed < 4; ++seed) EXPECT_EQ(running[seed]->wait()->text, alone[seed]);
  EXPECT_EQ(engine->generate(constraint_request(*engine, constraint, 2)).value().text, alone[2]);
}

TEST(ConstrainedGeneration, StopTokensOnlyWhereTheTextIsComplete) {
  const auto engine = open_constraint();
  GenerateRequest r = constraint_request(*engine, {Kind::kRegex, "(ab)*", {}});
  r.ignore_stop_tokens = true;
  r.max_tokens = 10;
  const auto result = engine->generate(r).value();
  EXPECT_EQ(result.reason, FinishReason::kLength);
  EXPECT_EQ(result.tokens.size(), 10U);
  const auto empty = engine->generate(constraint_request(*engine, {Kind::kRegex, "", {}})).value();
  EXPECT_EQ(empty.reason, FinishReason::kStop);
  EXPECT_EQ(empty.text, "");
}

TEST(ConstrainedGeneration, ErrorsAreThoseOfTheConstraint) {
  const auto engine = open_constraint();
  for (const auto& [constraint, reason] : std::vector<std::pair<OutputConstraint, const char*>>{
           {{Kind::kGrammar, "root ::= x", {}}, "line 1, column 10: rule x is not defined"},
           {{Kind::kRegex, "(a", {}}, "position 1: the group is not closed"},
           {{Kind::kJsonSchema, R"({"not":{}})", {}}, "the constraint matches no text"},
           {{Kind::kChoice, "", {}}, "there are no choices"}}) {
    const auto submitted = engine->submit(constraint_request(*engine, constraint));
    ASSERT_FALSE(submitted.ok());
    EXPECT_THAT(std::string(submitted.status().message()), HasSubstr(reason));
  }
}

}  // namespace
}  // namespace redline
