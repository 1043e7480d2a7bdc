// The context of an engine that was not given one: the model's own limit, as far as the cache holds it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "redline/text.h"
#include "support/bundled.h"
#include "support/temporary_folder.h"

namespace redline::testing {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLongLimit = 131072, kPageTokens = 32;

/// The bundled model, as if it were made for 131,072 tokens.
class LongContext : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const auto& file : fs::directory_iterator(kTales))
      if (file.is_regular_file() && file.path().filename() != "config.json")
        fs::create_symlink(file.path(), fs::path(folder_.path()) / file.path().filename());
    std::ifstream in(std::string(kTales) + "/config.json");
    nlohmann::json config = nlohmann::json::parse(in);
    config["max_position_embeddings"] = kLongLimit;
    std::ofstream(folder_.path() + "/config.json") << config.dump();
  }
  std::unique_ptr<TextEngine> open(TextEngineOptions options) {
    options.threads = 1;
    options.device = "cpu";
    auto engine = TextEngine::open(folder_.path(), options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return std::move(engine).value();
  }
  TemporaryFolder folder_;
};

TEST_F(LongContext, CacheMemoryBoundsIt) {
  TextEngineOptions options;
  options.cache_memory = int64_t{64} << 20;
  const auto engine = open(options);
  const int64_t held = engine->batch_limits().cache_tokens;
  EXPECT_EQ(engine->info().context, held / 1024 * 1024);
  EXPECT_GT(engine->info().context, 4096);
  EXPECT_LT(engine->info().context, kLongLimit);
  EXPECT_EQ(engine->info().model_context, kLongLimit);
}

TEST_F(LongContext, CacheTokensBoundIt) {
  TextEngineOptions options;
  options.cache_tokens = 10000;
  EXPECT_EQ(open(options)->info().context, 9 * 1024);
}

TEST_F(LongContext, HasAtLeast4096TokensWhateverTheCacheHolds) {
  TextEngineOptions options;
  options.cache_tokens = 100;
  EXPECT_EQ(open(options)->info().context, 4096);
}

TEST_F(LongContext, WithoutLimitsTheMemoryBoundsItAndNothingIsTouched) {
  const auto engine = open({});
  const int64_t context = engine->info().context, held = engine->batch_limits().cache_tokens;
  EXPECT_GE(context, 4096);
  EXPECT_LE(context, kLongLimit);
  EXPECT_GE(held, context);
  EXPECT_LE(held, TextEngineOptions().max_sequences * kLongLimit);
  EXPECT_TRUE(context == kLongLimit || context == held / 1024 * 1024 || context == 4096) << context << " of " << held;
  EXPECT_EQ(engine->memory().cache_touched, 0);
}

TEST_F(LongContext, TheOneThatIsAskedForStays) {
  TextEngineOptions options;
  options.context = 5000;
  options.cache_tokens = 2 * kPageTokens;
  EXPECT_EQ(open(options)->info().context, 5000);
}

TEST(ShortContext, AModelsOwnLimitIsItsContext) {
  TextEngineOptions options;
  options.threads = 1;
  options.cache_tokens = kPageTokens;
  const auto engine = TextEngine::open(kTales, options);
  ASSERT_TRUE(engine.ok());
  EXPECT_EQ((*engine)->info().context, (*engine)->info().model_context);
}

}  // namespace
}  // namespace redline::testing
