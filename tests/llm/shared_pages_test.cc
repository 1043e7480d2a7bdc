// Sequences of one step that share pages read them together, and nobody can tell from the result.
#include <gtest/gtest.h>

#include <algorithm>

#include "llm/attention_plan.h"
#include "llm/llm_engine.h"

namespace redline {
namespace {

constexpr int64_t kShared = 600;
constexpr size_t kSequences = 8;

std::vector<int32_t> shared_pages_tokens(int64_t count, int32_t seed) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < count; ++i) ids.push_back((seed * 31 + i * 17 + i * i) % 4000);
  return ids;
}

/// Logits of the sequences after every step: steps of one row each, of several, and of both.
std::vector<std::vector<float>> shared_pages_logits_of(int threads, const TextEngineOptions& base, bool shares) {
  TextEngineOptions options = base;
  options.threads = threads;
  options.max_batch_tokens = 1024;
  options.prefix_cache = false;
  auto opened = LlmEngine::make(Checkpoint::open(REDLINE_SOURCE_DIR "/assets/redline-tales").value(), options);
  EXPECT_TRUE(opened.ok()) << opened.status().to_string();
  (*opened)->stepper().set_cached_bytes(0);
  TextEngine& engine = **opened;
  const std::vector<int32_t> beginning = shared_pages_tokens(kShared, 1);
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (size_t i = 0; i < kSequences; ++i) {
    sequences.push_back(shares && i > 0 ? sequences[0]->fork().value() : engine.new_sequence().value());
    if (shares && i > 0) continue;
    const Status status = sequences[i]->append(beginning, {});
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  std::vector<std::vector<float>> all;
  for (int32_t step = 0; step < 6; ++step) {
    std::vector<std::vector<int32_t>> more(kSequences);
    std::vector<std::vector<float>> logits(kSequences,
                                           std::vector<float>(static_cast<size_t>(engine.info().vocab_size)));
    std::vector<BatchEntry> batch;
    for (size_t i = 0; i < kSequences; ++i) {
      const auto n = static_cast<int32_t>(i);
      more[i] = shared_pages_tokens(step < 2 ? 1 : step == 2 ? 5 : n % 2 ? 1 : 3 + 3 * n, 7 * n + step);
      batch.push_back({sequences[i].get(), more[i], logits[i]});
    }
    const Status status = engine.run_batch(batch);
    EXPECT_TRUE(status.ok()) << status.to_string();
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

TEST(SharedPages, AreReadOnceWithTheBitsOfSequencesOfTheirOwn) {
  for (const int slots : {1, 2, 3, 5}) {
    // The step of one row each is grouped.
    AttentionPlan plan({{slots}, 4, 2, 64, 1024, 64});
    std::vector<int32_t> table(64, 3);
    const std::vector<const int32_t*> pages(kSequences, table.data());
    std::vector<SequenceRows> rows;
    for (size_t i = 0; i < kSequences; ++i) rows.push_back({static_cast<int32_t>(i), 1, kShared});
    plan.make(rows, 0, pages);
    const auto is_group = [](const AttentionItem& item) { return item.is_group; };
    EXPECT_TRUE(std::any_of(plan.items().begin(), plan.items().end(), is_group));
    // Where scores depend on the row's own position, each row reads its pages itself.
    plan.make(rows, AttentionReach{.rows_can_share = false}, pages);
    EXPECT_TRUE(std::none_of(plan.items().begin(), plan.items().end(), is_group));
  }
  TextEngineOptions automatic, f32, invariant;
  f32.dtype = ComputeType::kF32;
  invariant.batch_invariant = true;
  for (const TextEngineOptions& options : {automatic, f32, invariant}) {
    const auto want = shared_pages_logits_of(2, options, false);
    for (const int threads : {1, 2, 3, 5})
      EXPECT_EQ(shared_pages_logits_of(threads, options, true), want) << threads << " threads";
  }
}

// Sequences share pages as a server does for n choices: the prompt is computed once but for its last page, which each
// choice writes to.
TEST(SharedPages, ChoicesOfOnePromptComputeItOnce) {
  constexpr size_t kChoices = 8;
  constexpr int64_t kWhole = kShared / kKvPageTokens;  // pages
  for (const bool prefix_cache : {true, false}) {
    TextEngineOptions options;
    options.threads = 2;
    options.dtype = ComputeType::kF32;
    options.prefix_cache = prefix_cache;
    const auto engine = TextEngine::open(REDLINE_SOURCE_DIR "/assets/redline-tales", options).value();
    GenerateRequest r;
    r.prompt = shared_pages_tokens(kShared, 3);
    r.sampling.temperature = 1;
    r.max_tokens = 8;
    r.ignore_stop_tokens = true;
    std::vector<std::vector<int32_t>> want;
    {
      TextEngineOptions alone = options;
      alone.prefix_cache = false;
      const auto plain = TextEngine::open(REDLINE_SOURCE_DIR "/assets/redline-tales", alone).value();
      for (r.sampling.seed = 0; r.sampling.seed < kChoices; ++r.sampling.seed)
        want.push_back(plain->generate(r)->tokens);
    }
    // All wait when the first step is planned.
    std::vector<std::shared_ptr<Generation>> running;
    GenerateRequest first;
    first.prompt = {5};
    first.max_tokens = 2;
    first.ignore_stop_tokens = true;
    int64_t max_pages = 0;
    const auto count_pages = [&](const TextPiece& piece) {
      if (piece.token >= 0) max_pages = std::max(max_pages, engine->stats().cache_pages_used);
      return true;
    };
    ASSERT_TRUE(engine
                    ->generate(first,
                               [&](const TextPiece&) {
                                 for (r.sampling.seed = 0; running.empty() || running.size() < kChoices;
                                      ++r.sampling.seed)
                                   running.push_back(engine->submit(r, count_pages).value());
                                 return true;
                               })
                    .ok());
    int64_t cached = 0;
    for (size_t i = 0; i < kChoices; ++i) {
      const auto result = running[i]->wait();
      ASSERT_TRUE(result.ok());
      EXPECT_EQ(result->tokens, want[i]) << i;
      cached += result->cached_tokens;
    }
    const auto n = static_cast<int64_t>(kChoices);
    EXPECT_EQ(cached, prefix_cache ? (n - 1) * kWhole * kKvPageTokens : 0);
    EXPECT_EQ(max_pages, prefix_cache ? kWhole + n : n * (kWhole + 1));
    EXPECT_EQ(engine->free_cache_tokens(), engine->batch_limits().cache_tokens);
  }
}

}  // namespace
}  // namespace redline
