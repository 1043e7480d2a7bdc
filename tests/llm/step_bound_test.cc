// EngineStats::bound_seconds: the least time of the steps on a machine of given limits.
#include <gtest/gtest.h>

#include "llm/llm_engine.h"
#include "llm/step_bound.h"
#include "machine/roofline.h"
#include "support/bundled.h"

namespace redline {
namespace {

constexpr double kRead = 1e9, kOperations = 3e9;

MachineLimits step_bound_limits(const MachineQuestion& question) {
  if (!question.may_measure) return {};
  MachineLimits limits{kRead, {}};
  for (const std::string& type : question.types) limits.operations_per_s[type] = kOperations;
  return limits;
}

std::unique_ptr<TextEngine> open_silent(const std::string& path = kTales) {
  TextEngineOptions options;
  options.threads = 2;
  options.prefix_cache = false;
  auto engine = TextEngine::open(path, options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return std::move(engine).value();
}

std::unique_ptr<TextEngine> open_step_bound(const std::string& path = kTales) {
  auto engine = open_silent(path);
  profile_of(*engine).count_bounds(step_bound_limits);
  return engine;
}

double bound_of(const TextEngine& engine, int64_t tokens, int64_t depth, int64_t sequences = 1) {
  double seconds = 0;
  for (const EngineProfile::OpCost& op : profile_of(engine).op_costs(tokens, depth, sequences))
    seconds += std::max(op.bytes / kRead, op.flops / kOperations);
  return seconds;
}

TEST(StepBound, IsTheSumOverStepsOfReadingOrArithmetic) {
  const auto engine = open_step_bound();
  EXPECT_EQ(engine->stats().bound_seconds, 0);
  GenerateRequest r;
  for (int32_t i = 0; i < 40; ++i) r.prompt.push_back(i * 7 % 4000);
  r.max_tokens = 3;
  r.ignore_stop_tokens = true;
  ASSERT_TRUE(engine->generate(r).ok());
  const double want = bound_of(*engine, 40, 0) + bound_of(*engine, 1, 40) + bound_of(*engine, 1, 41);
  EXPECT_NEAR(engine->stats().bound_seconds, want, 1e-9 * want);
}

TEST(StepBound, LimitsAreQueriedOnDemand) {
  std::vector<MachineQuestion> asked;
  const auto engine = open_silent();
  const auto count_bounds = [&] {
    profile_of(*engine).count_bounds([&](const MachineQuestion& question) {
      asked.push_back(question);
      return step_bound_limits(question);
    });
  };
  GenerateRequest r;
  r.prompt = {5, 6, 7};
  r.max_tokens = 3;
  r.ignore_stop_tokens = true;
  ASSERT_TRUE(engine->generate(r).ok());
  EXPECT_TRUE(asked.empty());
  EXPECT_EQ(engine->stats().bound_seconds, 0);
  // While a request runs, nothing is measured. The callback runs without the engine's mutex.
  ASSERT_TRUE(engine
                  ->generate(r,
                             [&](const TextPiece&) {
                               count_bounds();
                               return true;
                             })
                  .ok());
  ASSERT_FALSE(asked.empty());
  for (const MachineQuestion& question : asked) EXPECT_FALSE(question.may_measure);
  EXPECT_EQ(engine->stats().bound_seconds, 0);
  asked.clear();
  count_bounds();
  count_bounds();
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_TRUE(asked[0].may_measure);
  EXPECT_EQ(asked[0].threads, 2);
  EXPECT_GT(asked[0].step_bytes, 1000000);
  EXPECT_FALSE(asked[0].types.empty());
  ASSERT_TRUE(engine->generate(r).ok());
  EXPECT_GT(engine->stats().bound_seconds, 0);
}

TEST(StepBound, LayersWithAWindowReadNoFurtherBack) {
  StateGroup all, near;
  all.page_bytes = near.page_bytes = 32 * 100;
  all.values = {0};
  near.values = {1, 2, 3};
  near.window = 8;
  const auto by_hand = [](const StateGroup& group, int64_t tokens, int64_t depth) {
    StepWork work;
    int64_t first = depth;
    for (int64_t at = depth; at < depth + tokens; ++at) {
      const int64_t begin = group.window > 0 ? std::max<int64_t>(0, at - group.window + 1) : 0;
      first = std::min(first, begin);
      work.pairs += static_cast<double>((at - begin + 1) * std::ssize(group.values));
    }
    work.kv_bytes = 100 * static_cast<double>(depth + tokens - first);
    return work;
  };
  for (const StateGroup& group : {all, near})
    for (const int64_t tokens : {1, 3, 8, 20})
      for (const int64_t depth : {0, 1, 6, 7, 8, 9, 100}) {
        StepWork work;
        work.add_attention(std::span(&group, 1), static_cast<double>(tokens), static_cast<double>(depth));
        const StepWork want = by_hand(group, tokens, depth);
        EXPECT_EQ(work.kv_bytes, want.kv_bytes) << group.window << " " << tokens << " " << depth;
        EXPECT_EQ(work.pairs, want.pairs) << group.window << " " << tokens << " " << depth;
      }
  // In an engine whose layers all have a window, a token costs the same at any depth beyond it.
  const auto engine = open_step_bound(REDLINE_GOLDEN_DIR "/mistral_window");
  const EngineProfile& profile = profile_of(*engine);
  EXPECT_GT(profile.step_cost(1, 20, 1).bytes, profile.step_cost(1, 0, 1).bytes);
  EXPECT_EQ(profile.step_cost(1, 40, 1).bytes, profile.step_cost(1, 50, 1).bytes);
}

TEST(StepBound, StepsWithoutLogitsDoNotReadTheHead) {
  const auto engine = open_step_bound();
  const std::vector<int32_t> tokens(10, 5);
  const auto sequence = engine->new_sequence().value();
  ASSERT_TRUE(sequence->append(tokens, {}).ok());
  EXPECT_LT(engine->stats().bound_seconds, bound_of(*engine, 10, 0));
  EXPECT_GT(engine->stats().bound_seconds, 0);
}

TEST(StepBound, SharedPagesCountOnce) {
  const auto engine = open_step_bound();
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
  EXPECT_EQ(min_seconds(op, 0, 0), 0);
  EXPECT_EQ(min_seconds(op, 50, 0), 2);
  EXPECT_EQ(min_seconds(op, 50, 10), 20);
  EXPECT_EQ(min_seconds(std::span(&op, 1), {50, {{"f32", 10}}}), 2);
}

}  // namespace
}  // namespace redline
