// Memory that runs out in the middle: pages are refused at random, and nothing is lost but time.
#include <gtest/gtest.h>

#include <random>

#include "llm/llm_engine.h"
#include "support/bundled.h"

namespace redline::testing {
namespace {

std::unique_ptr<LlmEngine> open_fault(const std::string& path, bool prefix_cache) {
  TextEngineOptions options;
  options.threads = 2;
  options.dtype = ComputeType::kF32;
  options.cache_tokens = 40 * kKvPageTokens;
  options.max_batch_tokens = 64;
  options.prefix_cache = prefix_cache;
  auto checkpoint = Checkpoint::open(path);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().to_string();
  auto engine = LlmEngine::make(std::move(checkpoint).value(), options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return std::move(engine).value();
}

std::vector<GenerateRequest> requests_for(const TextEngine& engine) {
  const auto vocab = static_cast<int32_t>(engine.info().vocab_size);
  const int64_t context = engine.info().context, most = std::min<int64_t>(70, context / 2);
  std::vector<GenerateRequest> requests(16);
  for (int32_t i = 0; i < 16; ++i) {
    GenerateRequest& r = requests[static_cast<size_t>(i)];
    // Half of them begin alike.
    for (int32_t k = 0; k < 1 + i * 23 % most; ++k) r.prompt.push_back((k * 17 + (i % 2 ? 1 : i) * 5) % vocab);
    r.sampling.temperature = 1;
    r.sampling.seed = static_cast<uint64_t>(i);
    r.max_tokens = std::min<int64_t>(50, context / 4);
    r.ignore_stop_tokens = true;
  }
  return requests;
}

void check_fault(const std::string& path, bool prefix_cache) {
  SCOPED_TRACE(path);
  const auto opened = open_fault(path, prefix_cache);
  TextEngine* const engine = opened.get();
  Stepper& stepper = opened->stepper();
  const auto requests = requests_for(*engine);
  std::vector<std::vector<int32_t>> want;
  for (const GenerateRequest& r : requests) want.push_back(engine->generate(r)->tokens);
  StatePool& pool = stepper.pool();
  int refused = 0, whole = 0;
  for (const int share : {2, 5, 20, 100}) {
    std::mt19937 random(static_cast<unsigned>(share));
    {
      std::lock_guard lock(stepper.mutex());
      pool.set_fault([&](size_t) {
        const bool fails = random() % static_cast<unsigned>(share) == 0;
        refused += fails;
        return fails;
      });
    }
    std::vector<std::shared_ptr<Generation>> running;
    for (const GenerateRequest& r : requests) running.push_back(engine->submit(r).value());
    for (size_t i = 0; i < running.size(); ++i) {
      const auto result = running[i]->wait();
      if (!result.ok()) {
        EXPECT_EQ(result.status().code(), Code::out_of_memory) << result.status().to_string();
        continue;
      }
      EXPECT_EQ(result->reason, FinishReason::kLength);
      ASSERT_LE(result->tokens.size(), want[i].size());
      EXPECT_TRUE(std::equal(result->tokens.begin(), result->tokens.end(), want[i].begin())) << "request " << i;
      whole += result->tokens.size() == want[i].size();
    }
    std::lock_guard lock(stepper.mutex());
    pool.set_fault(nullptr);
    for (size_t g = 0; g < pool.num_groups(); ++g) EXPECT_EQ(pool.num_available(g), pool.capacity(g)) << share;
  }
  EXPECT_GT(refused, 20);
  EXPECT_GT(whole, 0);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(engine->generate(requests[i])->tokens, want[i]);
}

TEST(Faults, OutOfMemoryEndsOrDelaysRequestsWithoutLeaks) {
  for (const bool prefix_cache : {true, false}) {
    check_fault(kTales, prefix_cache);
    for (const std::string model : {"mistral_window", "qwen2_layer_types"})
      check_fault(std::string(REDLINE_GOLDEN_DIR) + "/" + model, prefix_cache);
  }
}

// All pages are refused: no request hangs, and a sequence of the caller is unchanged.
TEST(Faults, WithoutAnyPageEveryRequestFails) {
  const auto opened = open_fault(kTales, true);
  TextEngine* const engine = opened.get();
  Stepper& stepper = opened->stepper();
  const auto requests = requests_for(*engine);
  const auto sequence = engine->new_sequence().value();
  const std::vector<int32_t> tokens(40, 7), more(40, 8);
  ASSERT_TRUE(sequence->forward(tokens).ok());
  {
    std::lock_guard lock(stepper.mutex());
    stepper.pool().set_fault([](size_t) { return true; });
  }
  std::vector<std::shared_ptr<Generation>> running;
  for (const GenerateRequest& r : requests) running.push_back(engine->submit(r).value());
  for (const auto& r : running) EXPECT_EQ(r->wait().status().code(), Code::out_of_memory);
  EXPECT_EQ(sequence->forward(more).status().code(), Code::out_of_memory);
  EXPECT_EQ(sequence->length(), 40);
  {
    std::lock_guard lock(stepper.mutex());
    stepper.pool().set_fault(nullptr);
  }
  EXPECT_TRUE(sequence->forward(more).ok());
  EXPECT_TRUE(engine->generate(requests[3]).ok());
}

}  // namespace
}  // namespace redline::testing
