// Models with recurrent states on the whole engine: prefixes, forks, many requests at once.
#include <gtest/gtest.h>

#include <filesystem>

#include "redline/text.h"

namespace redline {
namespace {

constexpr int32_t kRecurrentEngineVocab = 60;

std::vector<int32_t> recurrent_engine_tokens(int64_t count, int32_t seed) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < count; ++i) ids.push_back(3 + (seed * 31 + i * 17 + i * i / 7) % kRecurrentEngineVocab);
  return ids;
}
std::vector<int32_t> operator+(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class RecurrentEngine : public ::testing::TestWithParam<const char*> {
 protected:
  static std::unique_ptr<TextEngine> open(bool prefix_cache, int64_t max_sequences = 64) {
    TextEngineOptions options;
    options.threads = 2;
    options.dtype = ComputeType::kF32;
    options.context = 1024;
    options.prefix_cache = prefix_cache;
    options.max_sequences = max_sequences;
    auto engine = TextEngine::open((std::filesystem::path(REDLINE_GOLDEN_DIR) / GetParam()).string(), options);
    EXPECT_TRUE(engine.ok()) << engine.status().to_string();
    return engine.ok() ? std::move(engine).value() : nullptr;
  }
  static GenerateRequest request(const std::vector<int32_t>& prompt, int64_t max_tokens = 20) {
    GenerateRequest r;
    r.prompt = prompt;
    r.sampling.temperature = 0;
    r.max_tokens = max_tokens;
    r.ignore_stop_tokens = true;
    return r;
  }
  static GenerateResult run(TextEngine& engine, const std::vector<int32_t>& prompt) {
    auto result = engine.generate(request(prompt));
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    return result.ok() ? *result : GenerateResult();
  }
};

// Steps of a prompt end at multiples of 256 and at the last page border; states are stored there, and at the end of a
// text.
TEST_P(RecurrentEngine, PromptsStartFromTheNearestStateThatIsStored) {
  const auto plain = open(false), engine = open(true);
  ASSERT_TRUE(plain && engine);
  const auto expect = [&](const std::vector<int32_t>& prompt, int64_t cached, CacheMiss miss) {
    const GenerateResult got = run(*engine, prompt);
    EXPECT_EQ(got.tokens, run(*plain, prompt).tokens);
    EXPECT_EQ(got.cached_tokens, cached);
    EXPECT_EQ(got.cache_miss, miss) << cache_miss_name(got.cache_miss);
    return got.tokens;
  };
  const std::vector<int32_t> a = recurrent_engine_tokens(300, 1);
  const std::vector<int32_t> answer = expect(a, 0, CacheMiss::kNotStored);
  expect(std::vector(a.begin(), a.begin() + 280) + recurrent_engine_tokens(40, 2), 256, CacheMiss::kSnapshot);
  expect(a, 288, CacheMiss::kSnapshot);
  expect(std::vector(a.begin(), a.begin() + 100), 0, CacheMiss::kSnapshot);
  // The next turn of a conversation continues at the end of the answer; its last token was never fed back.
  const auto length = static_cast<int64_t>(a.size() + answer.size()) - 1;
  expect(a + answer + recurrent_engine_tokens(9, 3), length, CacheMiss::kNotStored);
}

TEST_P(RecurrentEngine, RequestsAtOnceHaveTheTokensOfRequestsAlone) {
  const auto plain = open(false), engine = open(true, 3);
  ASSERT_TRUE(plain && engine);
  std::vector<std::vector<int32_t>> prompts;
  for (int32_t i = 0; i < 9; ++i)
    prompts.push_back(recurrent_engine_tokens(40 * (i % 3), 1) + recurrent_engine_tokens(5 + 23 * i, i));
  std::vector<std::shared_ptr<Generation>> running;
  for (const auto& prompt : prompts) {
    auto generation = engine->submit(request(prompt));
    ASSERT_TRUE(generation.ok()) << generation.status().to_string();
    running.push_back(std::move(generation).value());
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    auto result = running[i]->wait();
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    EXPECT_EQ(result->tokens, run(*plain, prompts[i]).tokens) << "request " << i;
  }
}

TEST_P(RecurrentEngine, ForksGoTheirOwnWays) {
  const auto engine = open(false);
  ASSERT_TRUE(engine);
  const std::vector<int32_t> beginning = recurrent_engine_tokens(45, 1), left = recurrent_engine_tokens(20, 2),
                             right = recurrent_engine_tokens(20, 3);
  auto one = engine->new_sequence().value(), left_alone = engine->new_sequence().value(),
       right_alone = engine->new_sequence().value();
  ASSERT_TRUE(one->forward(beginning).ok());
  auto two = one->fork().value();
  EXPECT_EQ(*one->forward(left), *left_alone->forward(beginning + left));
  EXPECT_EQ(*two->forward(right), *right_alone->forward(beginning + right));
  // The state before the last step is kept; further back there is only the beginning.
  EXPECT_EQ(two->truncate(50), 45);
  auto again = engine->new_sequence().value();
  EXPECT_EQ(*two->forward(left), *again->forward(beginning + left));
  EXPECT_EQ(two->truncate(20), 0);
  EXPECT_EQ(*two->forward(right), *engine->new_sequence().value()->forward(right));
}

INSTANTIATE_TEST_SUITE_P(All, RecurrentEngine, ::testing::Values("mamba2", "qwen3_next", "qwen3_5"));

}  // namespace
}  // namespace redline
