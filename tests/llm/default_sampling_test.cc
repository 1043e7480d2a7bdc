// Tests of the defaults that generation_config.json sets, and of threads that end their sequences at once.
#include <gmock/gmock.h>

#include <thread>

#include "base/error.h"
#include "formats/format_test_files.h"
#include "redline/text.h"

namespace redline {
namespace {

const std::string kDefaultSamplingGolden = REDLINE_GOLDEN_DIR "/llama_gqa";

Result<SamplingOptions> defaults_with(const char* generation) {
  const TestFolder folder;
  for (const auto& entry : std::filesystem::directory_iterator(kDefaultSamplingGolden))
    std::filesystem::create_symlink(entry.path(), folder / entry.path().filename().string());
  put_file(folder / "generation_config.json", generation);
  TextEngineOptions options;
  options.threads = 1;
  REDLINE_ASSIGN(const std::unique_ptr<TextEngine> engine, TextEngine::open(folder / "", options));
  return engine->default_sampling();
}

TEST(DefaultSampling, AFileThatSaysDoSampleMeansItsOwnDefaults) {
  const auto greedy = defaults_with(R"({"do_sample": false, "temperature": 0.7})");
  ASSERT_TRUE(greedy.ok()) << greedy.status().message();
  EXPECT_EQ(greedy->temperature, 0);
  const auto sampled = defaults_with(R"({"do_sample": true, "temperature": 0.6, "top_p": 0.9})");
  ASSERT_TRUE(sampled.ok());
  EXPECT_FLOAT_EQ(sampled->temperature, 0.6f);
  EXPECT_FLOAT_EQ(sampled->top_p, 0.9f);
  EXPECT_EQ(sampled->top_k, 50);
}

TEST(DefaultSampling, SilentFilesLeaveOurs) {
  const auto ours = defaults_with("{}");
  ASSERT_TRUE(ours.ok());
  EXPECT_FLOAT_EQ(ours->temperature, 0.8f);
  EXPECT_FLOAT_EQ(ours->top_p, 0.95f);
  EXPECT_EQ(ours->top_k, 0);
}

TEST(DefaultSampling, EdgesOfTheRanges) {
  EXPECT_EQ(defaults_with(R"({"top_k": -1})")->top_k, 0);
  EXPECT_GT(defaults_with(R"({"top_p": 0})")->top_p, 0);  // a sampler takes it
  EXPECT_FALSE(defaults_with(R"({"temperature": -1})").ok());
  EXPECT_FALSE(defaults_with(R"({"temperature": "hot"})").ok());
  EXPECT_TRUE(defaults_with(R"({"eos_token_id": [4294967298, -5, "x", 2]})").ok());
}

TEST(Sessions, OfOneEngineComeAndGoOnSeveralThreads) {
  TextEngineOptions options;
  options.threads = 1;
  auto engine = TextEngine::open(kDefaultSamplingGolden, options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      const std::vector<int32_t> tokens(40, t + 1);
      for (int i = 0; i < 20; ++i) {
        auto sequence = (*engine)->new_sequence();
        ASSERT_TRUE(sequence.ok());
        ASSERT_TRUE((*sequence)->forward(tokens).ok());
        (*sequence)->truncate(5);
        ASSERT_TRUE((*sequence)->forward(tokens).ok());
        EXPECT_EQ((*sequence)->length(), 45);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace redline
