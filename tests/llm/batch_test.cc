// Several sequences in one step: each gets what it would get alone, and a step that is refused changes nothing.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "base/error.h"
#include "kernels/cpu/cpu_kernels.h"
#include "redline/text.h"
#include "support/bundled.h"
#include "support/golden.h"

namespace redline {
namespace {

using ::testing::HasSubstr;

const std::string kBatchGolden = REDLINE_GOLDEN_DIR "/";

std::unique_ptr<TextEngine> open_batch(const std::string& path, TextEngineOptions options) {
  auto engine = TextEngine::open(path, options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return std::move(engine).value();
}

/// Largest difference over the largest value; 0 only when all bits agree.
double difference(std::span<const float> got, std::span<const float> want) {
  if (got.size() != want.size()) return INFINITY;
  if (got.empty() || std::memcmp(got.data(), want.data(), got.size_bytes()) == 0) return 0;
  double most = 1e-30, largest = 1e-30;
  for (size_t i = 0; i < want.size(); ++i) {
    most = std::max(most, std::isfinite(got[i]) ? std::abs(double{got[i]} - want[i]) : INFINITY);
    largest = std::max(largest, std::abs(double{want[i]}));
  }
  return most / largest;
}

/// Plays random steps: chunks of prompts, single tokens and tokens to verify of up to seven sequences in any mix, some
/// truncated or restarted in between. After each step every wanted row is compared with the same tokens, in one piece,
/// in a sequence that is alone in `alone`. Returns the largest difference.
double play_batch(TextEngine& batched, TextEngine& alone, int steps, uint32_t seed) {
  struct Pair {
    std::unique_ptr<Sequence> in_batch, by_itself;
  };
  std::mt19937 random(seed);
  auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  auto fresh = [&] { return Pair{batched.new_sequence().value(), alone.new_sequence().value()}; };
  std::vector<Pair> sequences(7);
  for (Pair& s : sequences) s = fresh();
  const int64_t context = batched.info().context, vocab = batched.info().vocab_size;
  double worst = 0;
  for (int i = 0; i < steps; ++i) {
    std::shuffle(sequences.begin(), sequences.end(), random);
    std::vector<std::vector<int32_t>> tokens;
    std::vector<std::vector<float>> logits;
    std::vector<BatchEntry> batch;
    int64_t free_tokens = batched.batch_limits().tokens, free_rows = batched.batch_limits().logit_rows;
    const int64_t size = 1 + below(static_cast<int64_t>(sequences.size()));
    for (int64_t s = 0; s < size; ++s) {
      Pair& sequence = sequences[static_cast<size_t>(s)];
      if (below(12) == 0) sequence = fresh();
      if (below(6) == 0) {
        const int64_t length = below(sequence.in_batch->length() + 1);
        sequence.in_batch->truncate(length);
        sequence.by_itself->truncate(length);
      }
      const int64_t wish = below(2) ? 1 : 1 + below(below(3) ? 20 : 70);
      const int64_t n = std::min({wish, free_tokens, context - sequence.in_batch->length()});
      if (n < 1) continue;
      std::vector<int32_t>& ids = tokens.emplace_back();
      for (int64_t t = 0; t < n; ++t) ids.push_back(static_cast<int32_t>(below(vocab)));
      const int64_t rows = std::min({below(3) ? 1 : below(n + 1), n, free_rows});
      logits.emplace_back(static_cast<size_t>(rows * vocab));
      batch.push_back({sequence.in_batch.get(), {}, {}});
      free_tokens -= n;
      free_rows -= rows;
    }
    if (batch.empty()) continue;
    for (size_t b = 0; b < batch.size(); ++b) {
      batch[b].tokens = tokens[b];
      batch[b].logits = logits[b];
    }
    if (const Status status = batched.run_batch(batch); !status.ok()) {
      ADD_FAILURE() << "step " << i << ": " << status.to_string();
      return INFINITY;
    }
    for (const BatchEntry& entry : batch)
      for (const Pair& sequence : sequences) {
        if (sequence.in_batch.get() != entry.sequence) continue;
        const std::vector<float> got(entry.logits.begin(), entry.logits.end());
        const auto all = sequence.by_itself->forward(entry.tokens, true);
        if (!all.ok() || sequence.in_batch->length() != sequence.by_itself->length()) {
          ADD_FAILURE() << "step " << i << ": " << all.status().to_string();
          return INFINITY;
        }
        worst = std::max(worst, difference(got, std::span(*all).last(got.size())));
      }
  }
  return worst;
}

const std::string kCases[] = {kTales,
                              kBatchGolden + "llama_gqa",
                              kBatchGolden + "mistral_window",
                              kBatchGolden + "qwen2_layer_types",
                              kBatchGolden + "qwen3",
                              kBatchGolden + "rope_dynamic"};
// The bound of docs/numerics.md for one run against the exact answer; two runs differ by twice that at most.
double auto_bound(const TextEngine& engine) {
  const auto rounding = testing::auto_rounding(engine.info().weight_types);
  return 2 * (rounding.any() ? rounding.golden_largest() : 4e-3);
}

TextEngineOptions options_of(int threads, ComputeType dtype) {
  TextEngineOptions options;
  options.threads = threads;
  options.dtype = dtype;
  options.max_batch_tokens = 96;
  return options;
}

TEST(Batch, InFloat32EverySequenceHasTheBitsItHasAloneOnAnyNumberOfThreads) {
  for (const std::string& model : kCases) {
    const auto alone = open_batch(model, options_of(1, ComputeType::kF32));
    for (const int threads : {1, 2, 3}) {
      const auto batched = open_batch(model, options_of(threads, ComputeType::kF32));
      EXPECT_EQ(play_batch(*batched, *alone, model == kTales ? 12 : 40, static_cast<uint32_t>(threads)), 0)
          << model << ", " << threads << " threads";
    }
  }
}

TEST(Batch, UnderAutoEverySequenceStaysWithinItsRounding) {
  double worst = 0;
  for (const std::string& model : kCases) {
    const auto alone = open_batch(model, options_of(1, ComputeType::kAuto));
    const auto batched = open_batch(model, options_of(2, ComputeType::kAuto));
    const double d = play_batch(*batched, *alone, model == kTales ? 12 : 40, 7);
    EXPECT_LE(d, auto_bound(*alone)) << model;
    worst = std::max(worst, d);
  }
  RecordProperty("worst", fmt::format("{:.1e}", worst));
}

TEST(Batch, TheInterpreterTakesBatchesToo) {
  TextEngineOptions options = options_of(1, ComputeType::kF32);
  options.use_interpreter = true;
  const auto alone = open_batch(kBatchGolden + "llama_gqa", options),
             batched = open_batch(kBatchGolden + "llama_gqa", options);
  EXPECT_EQ(play_batch(*batched, *alone, 8, 5), 0);
}

TEST(Batch, AStepMayBeAsLargeAsItsLimits) {
  TextEngineOptions options;
  options.threads = 2;
  options.context = 8;
  options.max_sequences = 100;
  const auto engine = open_batch(kBatchGolden + "llama_gqa", options);
  const BatchLimits limits = engine->batch_limits();
  EXPECT_EQ(limits.tokens, 512);
  EXPECT_EQ(limits.sequences, 100);
  EXPECT_EQ(limits.logit_rows, 100);
  EXPECT_EQ(limits.cache_tokens, 100 * limits.page_tokens);  // eight tokens take a page
  EXPECT_EQ(engine->free_cache_tokens(), limits.cache_tokens);
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<BatchEntry> batch;
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5};
  const auto vocab = static_cast<size_t>(engine->info().vocab_size);
  std::vector<float> logits(102 * vocab);
  const auto add = [&] {
    sequences.push_back(engine->new_sequence().value());
    batch.push_back({sequences.back().get(), tokens, std::span(logits).subspan(batch.size() * vocab, vocab)});
  };
  for (int64_t i = 0; i < limits.sequences; ++i) add();
  ASSERT_TRUE(engine->run_batch(batch).ok());
  EXPECT_EQ(engine->free_cache_tokens(), 0);
  const std::vector<float> first(batch[0].logits.begin(), batch[0].logits.end());
  EXPECT_EQ(difference(first, batch[99].logits), 0);
  // 101 sequences, 500 + 13 tokens, 101 rows.
  add();
  for (const auto& sequence : sequences) sequence->truncate(0);
  EXPECT_EQ(engine->run_batch(batch).message(), "101 sequences are more than the 100 of one step; raise max_sequences");
  batch.pop_back();
  batch[0].logits = std::span(logits).last(2 * vocab);
  EXPECT_THAT(engine->run_batch(batch).message(), HasSubstr("logits of 101 rows are more than the 100 of one step"));
  batch[0].logits = std::span(logits).first(vocab);
  const std::vector<int32_t> eight(8, 1);
  for (size_t i = 0; i < 5; ++i) batch[i].tokens = eight;
  EXPECT_THAT(engine->run_batch(batch).message(), HasSubstr("515 tokens are more than the 512 of one step"));
  for (const auto& sequence : sequences) EXPECT_EQ(sequence->length(), 0);
  EXPECT_EQ(engine->free_cache_tokens(), limits.cache_tokens);
}

TEST(Batch, WhatIsWrongWithAnEntryIsSaidAndNothingIsAppended) {
  TextEngineOptions options;
  options.threads = 1;
  options.context = 6;
  const auto engine = open_batch(kBatchGolden + "llama_gqa", options),
             other = open_batch(kBatchGolden + "llama_gqa", options);
  const auto a = engine->new_sequence().value(), b = engine->new_sequence().value(), c = other->new_sequence().value();
  const std::vector<int32_t> two = {1, 2}, five = {1, 2, 3, 4, 5}, bad = {1, 1 << 20};
  ASSERT_TRUE(a->forward(two).ok());
  auto message = [&](std::vector<BatchEntry> batch) {
    const Status status = engine->run_batch(batch);
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_EQ(a->length(), 2);
    EXPECT_EQ(b->length(), 0);
    return status.message();
  };
  EXPECT_EQ(message({}), "the batch is empty");
  EXPECT_EQ(message({{b.get(), two}, {a.get(), {}}}), "batch entry 1: no tokens to run");
  EXPECT_EQ(message({{b.get(), two}, {a.get(), two}, {b.get(), two}}),
            "batch entry 2: the sequence is that of entry 0; give its tokens as one entry");
  EXPECT_EQ(message({{b.get(), two}, {a.get(), five}}),
            "batch entry 1: 5 tokens do not fit: the context holds 6, 2 are taken");
  EXPECT_THAT(message({{a.get(), bad}}), HasSubstr("batch entry 0: token 1048576 is outside the vocabulary of"));
  const int64_t vocab = engine->info().vocab_size;
  std::vector<float> logits(static_cast<size_t>(3 * vocab));
  EXPECT_EQ(message({{a.get(), two, logits}}), "batch entry 0: logits of 3 rows are requested, there are 2 tokens");
  EXPECT_EQ(message({{a.get(), two, std::span(logits).first(5)}}),
            fmt::format("batch entry 0: room for 5 logits is not whole rows of {}", vocab));
  EXPECT_EQ(message({{a.get(), two}, {c.get(), two}}), "batch entry 1: the sequence belongs to another engine");
  EXPECT_EQ(message({{nullptr, two}}), "batch entry 0: there is no sequence");
}

TEST(Batch, OutOfMemoryLeavesEverySequenceUnchanged) {
  TextEngineOptions options;
  options.threads = 2;
  options.dtype = ComputeType::kF32;
  options.cache_tokens = 90;  // three pages
  const auto engine = open_batch(kTales, options);
  const auto a = engine->new_sequence().value(), b = engine->new_sequence().value();
  std::vector<int32_t> many(40);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<int32_t>(3 * i + 1);
  const auto head = std::span<const int32_t>(many).first(30);
  ASSERT_TRUE(a->forward(head).ok());
  const int64_t page = engine->batch_limits().page_tokens, free_before = engine->free_cache_tokens();
  EXPECT_EQ(free_before, 2 * page);
  std::vector<BatchEntry> batch = {{a.get(), many}, {b.get(), many}};  // one entry fits, both do not
  const Status full = engine->run_batch(batch);
  EXPECT_EQ(full.code(), Code::out_of_memory);
  EXPECT_THAT(full.message(), HasSubstr("key-value cache:"));
  EXPECT_EQ(a->length(), 30);
  EXPECT_EQ(b->length(), 0);
  EXPECT_EQ(engine->free_cache_tokens(), free_before);
  // The cache of `a` is unchanged: `a` goes on as an undisturbed sequence does.
  const auto got = a->forward(many);
  ASSERT_TRUE(got.ok());
  const std::vector<float> after(got->begin(), got->end());
  a->truncate(0);
  ASSERT_TRUE(b->forward(head).ok());
  EXPECT_EQ(difference(after, b->forward(many).value()), 0);
}

TEST(Batch, OptionsOutOfRangeAreNamed) {
  TextEngineOptions options;
  options.max_sequences = 0;
  EXPECT_THAT(TextEngine::open(kTales, options).status().message(), HasSubstr("max_sequences 0 is outside [1, 4096]"));
  options = {};
  options.max_batch_tokens = 0;
  EXPECT_THAT(TextEngine::open(kTales, options).status().message(), HasSubstr("max_batch_tokens 0 is outside"));
  options = {};
  options.cache_tokens = -1;
  EXPECT_THAT(TextEngine::open(kTales, options).status().message(), HasSubstr("cache_tokens -1"));
}

// Steps and pages belong to all: threads with sequences of their own take turns.
TEST(Batch, ThreadsWithSequencesOfTheirOwnDoNotDisturbEachOther) {
  TextEngineOptions options;
  options.threads = 2;
  options.dtype = ComputeType::kF32;
  const auto engine = open_batch(kBatchGolden + "llama_gqa", options);
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 6, 7};
  std::vector<float> want;
  {
    const auto sequence = engine->new_sequence().value();
    const auto logits = sequence->forward(tokens).value();
    want.assign(logits.begin(), logits.end());
  }
  std::vector<std::thread> threads;
  std::vector<double> worst(3, INFINITY);
  for (size_t t = 0; t < worst.size(); ++t)
    threads.emplace_back([&, t] {
      double most = 0;
      for (int round = 0; round < 20; ++round) {
        const auto sequence = engine->new_sequence().value();
        for (const int32_t& token : tokens) {
          const auto logits = sequence->forward({&token, 1});
          if (&token == &tokens.back()) most = std::max(most, difference(*logits, want));
        }
        sequence->truncate(static_cast<int64_t>(t));
      }
      worst[t] = most;
    });
  for (std::thread& thread : threads) thread.join();
  for (const double most : worst) EXPECT_EQ(most, 0);
}

}  // namespace
}  // namespace redline
