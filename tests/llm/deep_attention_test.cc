// Attention at depth: positions of one head are split over workers, and nobody can tell from the result.
#include <gtest/gtest.h>

#include <random>

#include "llm/attention_plan.h"
#include "redline/text.h"

namespace redline {
namespace {

constexpr int64_t kDepth = 900, kSteps = 4;

std::vector<std::vector<float>> logits_at_depth(int threads, ComputeType dtype) {
  TextEngineOptions options;
  options.threads = threads;
  options.dtype = dtype;
  auto engine = TextEngine::open(REDLINE_SOURCE_DIR "/assets/redline-tales", options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  auto sequence = (*engine)->new_sequence();
  EXPECT_TRUE(sequence.ok());
  std::mt19937 random(11);
  std::vector<int32_t> prompt(kDepth);
  for (int32_t& id : prompt) id = static_cast<int32_t>(random() % static_cast<uint32_t>((*engine)->info().vocab_size));
  std::vector<std::vector<float>> rows;
  for (int64_t step = 0; step <= kSteps; ++step) {
    const std::span<const int32_t> tokens =
        step == 0 ? std::span<const int32_t>(prompt)
                  : std::span<const int32_t>(prompt).subspan(static_cast<size_t>(step), 1);
    auto logits = (*sequence)->forward(tokens);
    EXPECT_TRUE(logits.ok()) << logits.status().to_string();
    rows.emplace_back(logits->begin(), logits->end());
  }
  return rows;
}

TEST(DeepAttention, SplitPositionsGiveTheBitsOfOneThread) {
  // The bundled model has two KV heads: one row at this depth is split on three workers and more.
  AttentionPlan plan({{3}, 4, 2, 64, 512, 1});
  const std::vector<SequenceRows> decode = {{0, 1, kDepth}};
  plan.make(decode, 0);
  ASSERT_FALSE(plan.splits().empty());
  for (const ComputeType dtype : {ComputeType::kF32, ComputeType::kAuto}) {
    const auto alone = logits_at_depth(1, dtype);
    for (const int threads : {2, 3, 5}) EXPECT_EQ(logits_at_depth(threads, dtype), alone) << threads << " threads";
  }
}

}  // namespace
}  // namespace redline
