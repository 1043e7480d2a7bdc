// The fit of the time of steps, against times that are known.
#include "llm/step_time.h"

#include <gtest/gtest.h>

#include <random>

#include "redline/text.h"
#include "support/bundled.h"

namespace redline {
namespace {

/// Seconds of a machine with 20 ms for the weights, 0.5 ms per sampled row and 0.8 ms per prompt token.
double seconds(int64_t rows, int64_t prompt_tokens) {
  return 0.02 + 0.0005 * static_cast<double>(rows) + 0.0008 * static_cast<double>(prompt_tokens);
}

TEST(StepTime, IsCautiousBeforeItKnows) {
  StepTime time;
  EXPECT_EQ(time.prompt_tokens_within(2, 4, 4), StepTime::kUnknown);
  for (int i = 0; i < 20; ++i) time.add(4, 0, seconds(4, 0));
  EXPECT_EQ(time.prompt_tokens_within(2, 4, 4), StepTime::kUnknown) << "no prompt was seen";
}

TEST(StepTime, FindsHowManyPromptTokensFit) {
  StepTime time;
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    const auto rows = static_cast<int64_t>(random() % 16 + 1), tokens = static_cast<int64_t>(random() % 3 * 100);
    time.add(rows, tokens, seconds(rows, tokens));
  }
  for (const int64_t rows : {1, 8, 16, 40})
    for (const double ratio : {1.5, 2.5}) {
      const auto want = static_cast<double>((ratio - 1) * seconds(rows, 0) / 0.0008);
      EXPECT_NEAR(static_cast<double>(time.prompt_tokens_within(ratio, rows, rows)),
                  std::max(want, double{StepTime::kMin}), 0.02 * want + 1);
    }
  // Three texts decode and 13 more will: a step may take as long as is usual among 16.
  EXPECT_NEAR(static_cast<double>(time.prompt_tokens_within(2.5, 3, 16)),
              (2.5 * seconds(16, 0) - seconds(3, 0)) / 0.0008, 2);
  EXPECT_EQ(time.prompt_tokens_within(1, 8, 8), StepTime::kMin);
  EXPECT_EQ(time.prompt_tokens_within(1e9, 8, 8), StepTime::kNoLimit);
}

TEST(StepTime, AdaptsToTheMachineAndIgnoresOneOutlier) {
  StepTime time;
  const auto run = [&](int steps, double factor) {
    for (int i = 0; i < steps; ++i) {
      const int64_t tokens = i % 3 == 0 ? 64 : 0;
      time.add(8, tokens, factor * seconds(8, tokens));
    }
  };
  run(100, 1);
  const auto before = static_cast<double>(time.prompt_tokens_within(2.5, 8, 8));
  EXPECT_NEAR(before, 45, 3);
  time.add(8, 64, 5);
  EXPECT_NEAR(static_cast<double>(time.prompt_tokens_within(2.5, 8, 8)), before, 0.4 * before);
  run(300, 3);  // everything is slower: the ratio stays
  EXPECT_NEAR(static_cast<double>(time.prompt_tokens_within(2.5, 8, 8)), before, 0.1 * before);
}

TEST(StepTime, AnEndlessTimeOfOneKindDoesNoHarm) {
  StepTime time;
  for (int i = 0; i < 10; ++i) time.add(8, i % 2 * 64, seconds(8, i % 2 * 64));
  for (int i = 0; i < 100000; ++i) time.add(8, 0, seconds(8, 0));
  EXPECT_NEAR(static_cast<double>(time.prompt_tokens_within(2.5, 8, 8)), 45, 10);
  for (int i = 0; i < 100; ++i) time.add(8, i % 2 * 64, seconds(8, i % 2 * 64));
  EXPECT_NEAR(static_cast<double>(time.prompt_tokens_within(2.5, 8, 8)), 45, 3);
}

TEST(StepTime, TextsDoNotDependOnTheChunksOfOtherPrompts) {
  std::vector<std::vector<int32_t>> first;
  for (const double slowdown : {0.0, 1.0, 2.5}) {
    TextEngineOptions options;
    options.threads = 2;
    options.dtype = ComputeType::kF32;
    options.prefix_cache = false;
    options.max_slowdown = slowdown;
    const auto engine = TextEngine::open(kTales, options);
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    std::vector<std::shared_ptr<Generation>> running;
    for (int32_t i = 0; i < 6; ++i) {
      GenerateRequest r;
      for (int32_t t = 0; t < 40 + 100 * i; ++t) r.prompt.push_back((i * 91 + t * 37) % 4000 + 3);
      r.max_tokens = 60;
      r.ignore_stop_tokens = true;
      r.sampling.temperature = 0;
      running.push_back((*engine)->submit(r).value());
    }
    std::vector<std::vector<int32_t>> texts;
    for (const auto& generation : running) texts.push_back(generation->wait().value().tokens);
    if (first.empty()) first = texts;
    EXPECT_EQ(texts, first) << slowdown;
  }
  for (const double wrong : {0.5, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    TextEngineOptions options;
    options.max_slowdown = wrong;
    EXPECT_EQ(TextEngine::open(kTales, options).status().code(), Code::invalid_argument) << wrong;
  }
}

}  // namespace
}  // namespace redline
