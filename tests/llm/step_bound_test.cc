// EngineStats::bound_seconds: the least time of the steps on a machine of given limits.
#include <gtest/gtest.h>

#include "llm/llm_engine.h"
#include "llm/step_bound.h"

namespace redline {
namespace {

constexpr double kRead = 1e9, kOperations = 3e9;

std::unique_ptr<TextEngine> open(MachineQuestion* asked = nullptr) {
  TextEngineOptions options;
  options.threads = 2;
  options.prefix_cache = false;
  options.machine_limits = [asked](const MachineQuestion& question) {
    if (asked) *asked = question;
    MachineLimits limits{kRead, {}};
    for (const std::string& type : question.types) limits.operations_per_s[type] = kOperations;
    return limits;
  };
  auto engine = TextEngine::open(REDLINE_SOURCE_DIR "/assets/redline-tales", options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return std::move(engine).value();
}

double bound_of(const TextEngine& engine, int64_t tokens, int64_t depth, int64_t sequences = 1) {
  double seconds = 0;
  for (const EngineProfile::OpCost& op : profile_of(engine).op_costs(tokens, depth, sequences))
    seconds += std::max(op.bytes / kRead, op.flops / kOperations);
  return seconds;
}

TEST(StepBound, IsTheSumOverStepsOfReadingOrArithmetic) {
  MachineQuestion asked;
  const auto engine = open(&asked);
  EXPECT_EQ(asked.threads, 2);
  EXPECT_GT(asked.step_bytes, 1000000);
  EXPECT_FALSE(asked.types.empty());
  EXPECT_EQ(engine->stats().bound_seconds, 0);
  GenerateRequest r;
  for (int32_t i = 0; i < 40; ++i) r.prompt.push_back(i * 7 % 4000);
  r.max_tokens = 3;
  r.ignore_stop_tokens = true;
  ASSERT_TRUE(engine->generate(r).ok());
  const double want = bound_of(*engine, 40, 0) + bound_of(*engine, 1, 40) + bound_of(*engine, 1, 41);
  EXPECT_NEAR(engine->stats().bound_seconds, want, 1e-9 * want);
}

TEST(StepBound, StepsWithoutLogitsDoNotReadTheHead) {
  const auto engine = open();
  const std::vector<int32_t> tokens(10, 5);
  const auto sequence = engine->new_sequence().value();
  ASSERT_TRUE(sequence->append(tokens, {}).ok());
  EXPECT_LT(engine->stats().bound_seconds, bound_of(*engine, 10, 0));
  EXPECT_GT(engine->stats().bound_seconds, 0);
}

TEST(StepBound, SharedPagesCountOnce) {
  const auto engine = open();
  dynamic_cast<LlmEngine&>(*engine).stepper().set_cached_bytes(0);
  const std::vector<int32_t> beginning(700, 5), next = {6};
  std::vector<std::unique_ptr<Sequence>> sequences;
  sequences.push_back(engine->new_sequence().value());
  ASSERT_TRUE(sequences[0]->append(beginning, {}).ok());
  std::vector<std::vector<float>> logits(8, std::vector<float>(static_cast<size_t>(engine->info().vocab_size)));
  std::vector<BatchEntry> batch;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (i > 0) sequences.push_back(sequences[0]->fork().value());
    batch.push_back({sequences[i].get(), next, logits[i]});
  }
  const double before = engine->stats().bound_seconds;
  ASSERT_TRUE(engine->run_batch(batch).ok());
  const double step = engine->stats().bound_seconds - before;
  EXPECT_LT(step, bound_of(*engine, 1, 700, 8));
  EXPECT_GT(step, bound_of(*engine, 1, 700, 1));
}

TEST(StepBound, UnknownLimitsBoundNothing) {
  const EngineProfile::OpCost op{"layers", "f16", 100, 200};
  EXPECT_EQ(least_seconds(op, 0, 0), 0);
  EXPECT_EQ(least_seconds(op, 50, 0), 2);
  EXPECT_EQ(least_seconds(op, 50, 10), 20);
  EXPECT_EQ(least_seconds(std::span(&op, 1), {50, {{"f32", 10}}}), 2);
}

}  // namespace
}  // namespace redline
