// The loop on top: limits, stops, cancelling, errors, of the bundled model.
#include <gmock/gmock.h>

#include <cmath>

#include "base/error.h"
#include "redline/text.h"
#include "support/bundled.h"

namespace redline {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<TextEngine> engine_open_tales(TextEngineOptions options = {}) {
  options.threads = 2;
  auto engine = TextEngine::open(kTales, options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return std::move(engine).value();
}

GenerateRequest greedy(const TextEngine& engine, std::string_view prompt, int64_t max_tokens) {
  GenerateRequest request;
  request.prompt = engine.encode(prompt).value();
  request.sampling.temperature = 0;
  request.max_tokens = max_tokens;
  return request;
}

TEST(TextEngine, APromptLongerThanTheContextIsAnErrorWithBothNumbers) {
  TextEngineOptions options;
  options.context = 8;
  const auto engine = engine_open_tales(options);
  const auto result = engine->generate(greedy(*engine, "one two three four five six seven eight nine ten", 4));
  EXPECT_EQ(result.status().code(), Code::invalid_argument);
  EXPECT_THAT(result.status().message(), HasSubstr("tokens, the context holds 8"));
}

TEST(TextEngine, AFullContextEndsTheTextAsContext) {
  TextEngineOptions options;
  options.context = 9;
  const auto engine = engine_open_tales(options);
  const auto result = engine->generate(greedy(*engine, "Once upon a time", 100));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->reason, FinishReason::kContext);
  EXPECT_EQ(result->prompt_tokens, 5);
  EXPECT_EQ(result->tokens.size(), 5u);  // four fill the context, the last one comes from its last logits
}

TEST(TextEngine, ThePiecesAreTheText) {
  const auto engine = engine_open_tales();
  std::string text;
  int tokens = 0;
  const auto result = engine->generate(greedy(*engine, "Once upon a time", 30), [&](const TextPiece& piece) {
    text += piece.text;
    tokens += piece.token >= 0;
    return true;
  });
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(text, result->text);
  EXPECT_EQ(tokens, 30);
  EXPECT_THAT(text, ::testing::StartsWith(", there was a little girl named Lily."));
}

TEST(TextEngine, ReturningFalseCancels) {
  const auto engine = engine_open_tales();
  int pieces = 0;
  const auto result =
      engine->generate(greedy(*engine, "Once upon a time", 100), [&](const TextPiece&) { return ++pieces < 3; });
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->reason, FinishReason::kCancelled);
  EXPECT_EQ(result->tokens.size(), 3u);
  EXPECT_EQ(pieces, 3);
}

TEST(TextEngine, LogprobsAreOfTheDistributionAndTheGreedyTokenLeads) {
  const auto engine = engine_open_tales();
  GenerateRequest request = greedy(*engine, "Once upon a time", 5);
  request.num_logprobs = 4;
  const auto result = engine->generate(request, [](const TextPiece& piece) {
    EXPECT_EQ(piece.top.size(), 4u);
    EXPECT_EQ(piece.top[0].id, piece.token);
    EXPECT_EQ(piece.top[0].logprob, piece.logprob);
    double sum = 0;
    for (size_t i = 0; i < piece.top.size(); ++i) {
      sum += std::exp(piece.top[i].logprob);
      if (i > 0) {
        EXPECT_LE(piece.top[i].logprob, piece.top[i - 1].logprob);
      }
    }
    EXPECT_LE(sum, 1.0 + 1e-6);
    return true;
  });
  ASSERT_TRUE(result.ok());
}

TEST(TextEngine, SpecialTokensAreTextByDefault) {
  const auto engine = engine_open_tales();
  const std::string chat = "<|endoftext|><|im_start|>user\nHi!<|im_end|>\n";
  const auto inert = engine->encode(chat, false).value(), parsed = engine->encode(chat, true).value();
  EXPECT_EQ(inert[0], 0);
  EXPECT_EQ(std::count(inert.begin() + 1, inert.end(), 0), 0);
  EXPECT_EQ(parsed[0], 0);
  EXPECT_EQ(parsed[1], 1);
  EXPECT_EQ(std::count(parsed.begin(), parsed.end(), 2), 1);
}

TEST(TextEngine, BadRequestsAreNamed) {
  const auto engine = engine_open_tales();
  GenerateRequest request = greedy(*engine, "x", 4);
  request.stop = {""};
  EXPECT_EQ(engine->generate(request).status().code(), Code::invalid_argument);
  request = greedy(*engine, "x", -1);
  EXPECT_THAT(engine->generate(request).status().message(), HasSubstr("max_tokens -1"));
  request = greedy(*engine, "x", 4);
  request.prompt.push_back(4096);
  EXPECT_EQ(engine->generate(request).status().message(), "token 4096 is outside the vocabulary of 4096");
  request = greedy(*engine, "x", 4);
  request.sampling.top_p = 2;
  EXPECT_THAT(engine->generate(request).status().message(), HasSubstr("top_p"));
}

TEST(TextEngine, OptionsOutOfRangeAreNamed) {
  TextEngineOptions options;
  options.threads = -3;
  EXPECT_THAT(TextEngine::open(kTales, options).status().message(), HasSubstr("threads"));
  options = {};
  options.context = -1;
  EXPECT_THAT(TextEngine::open(kTales, options).status().message(), HasSubstr("context -1"));
  EXPECT_EQ(TextEngine::open("/nowhere/at/all").status().code(), Code::not_found);
  EXPECT_EQ(precision_from_name("f64").status().message(),
            "unknown dtype \"f64\"; expected one of auto, f32, bf16, q8, q8_0, w8a8");
}

TEST(TextEngine, ASessionThatRunsFullSaysHowMuchIsTaken) {
  TextEngineOptions options;
  options.context = 4;
  const auto engine = engine_open_tales(options);
  const auto sequence = engine->new_sequence().value();
  const std::vector<int32_t> tokens = {0, 5, 6};
  ASSERT_TRUE(sequence->forward(tokens).ok());
  EXPECT_EQ(sequence->forward(tokens).status().message(), "3 tokens do not fit: the context holds 4, 3 are taken");
  EXPECT_EQ(sequence->length(), 3);  // and nothing was appended
  sequence->truncate(1);
  EXPECT_TRUE(sequence->forward(tokens).ok());
}

}  // namespace
}  // namespace redline
