// Requests that run together, and engines that share a runtime.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "redline/text.h"
#include "support/bundled.h"

namespace redline {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string> kPrompts = {"Once upon a time", "The dog", "One day, a big",
                                           "Lily and Tom went to the park", "In the garden there was"};

std::unique_ptr<TextEngine> open_generation(TextEngineOptions options = {}) {
  options.threads = options.runtime ? 0 : 2;
  options.dtype = ComputeType::kF32;  // a sequence has the same bits in any batch
  auto engine = TextEngine::open(kTales, options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return std::move(engine).value();
}

GenerateRequest generation_request(const TextEngine& engine, const std::string& prompt, int64_t max_tokens) {
  GenerateRequest r;
  r.prompt = engine.encode(prompt).value();
  r.sampling.temperature = 1;
  r.sampling.seed = prompt.size();
  r.max_tokens = max_tokens;
  r.ignore_stop_tokens = true;
  return r;
}

/// Returns the text that each prompt gives when nothing else runs.
std::vector<std::vector<int32_t>> alone(int64_t max_tokens) {
  const auto engine = open_generation();
  std::vector<std::vector<int32_t>> texts;
  for (const std::string& prompt : kPrompts)
    texts.push_back(engine->generate(generation_request(*engine, prompt, max_tokens)).value().tokens);
  return texts;
}

TEST(Generation, SubmittedRequestsGiveWhatTheyGiveAlone) {
  const auto want = alone(40);
  const auto engine = open_generation();
  std::vector<std::shared_ptr<Generation>> running;
  std::vector<std::string> texts(kPrompts.size());
  for (size_t i = 0; i < kPrompts.size(); ++i) {
    auto submitted = engine->submit(generation_request(*engine, kPrompts[i], 40), [&texts, i](const TextPiece& piece) {
      texts[i] += piece.text;
      return true;
    });
    ASSERT_TRUE(submitted.ok());
    running.push_back(*submitted);
  }
  for (size_t i = 0; i < kPrompts.size(); ++i) {
    const auto result = running[i]->wait();
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    EXPECT_TRUE(running[i]->is_done());
    EXPECT_EQ(result->tokens, want[i]);
    EXPECT_EQ(result->text, texts[i]);
    EXPECT_EQ(result->reason, FinishReason::kLength);
  }
  EXPECT_EQ(engine->free_cache_tokens(), engine->batch_limits().cache_tokens);
}

TEST(Generation, CallsFromSeveralThreadsShareSteps) {
  const auto want = alone(30);
  const auto engine = open_generation();
  std::vector<std::vector<int32_t>> got(kPrompts.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kPrompts.size(); ++i)
    threads.emplace_back(
        [&, i] { got[i] = engine->generate(generation_request(*engine, kPrompts[i], 30)).value().tokens; });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got, want);
}

// The cache holds about two of the five sequences: the others wait, or are computed again.
TEST(Generation, PreemptionInASmallCacheLosesNoRequest) {
  const auto want = alone(100);
  TextEngineOptions options;
  options.cache_tokens = 8 * 32;
  const auto engine = open_generation(options);
  std::vector<std::shared_ptr<Generation>> running;
  for (const std::string& prompt : kPrompts)
    running.push_back(engine->submit(generation_request(*engine, prompt, 100)).value());
  for (size_t i = 0; i < kPrompts.size(); ++i) {
    const auto result = running[i]->wait();
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    EXPECT_EQ(result->tokens, want[i]) << kPrompts[i];
  }
  EXPECT_EQ(engine->free_cache_tokens(), 8 * 32);
}

TEST(Generation, ARequestThatNeverFitsFailsAndTheNextOneRuns) {
  TextEngineOptions options;
  options.cache_tokens = 32;
  const auto engine = open_generation(options);
  std::string prompt;
  for (int i = 0; i < 60; ++i) prompt += "the dog ";
  const auto long_one = engine->submit(generation_request(*engine, prompt, 5)).value();
  const auto short_one = engine->submit(generation_request(*engine, "The dog", 5)).value();
  const Status failed = long_one->wait().status();
  EXPECT_EQ(failed.code(), Code::out_of_memory);
  EXPECT_THAT(failed.message(), HasSubstr("more pages of 32 tokens are needed, 1 of 1 are free"));
  EXPECT_EQ(short_one->wait().value().tokens.size(), 5u);
}

TEST(Generation, FurtherStopTokensEndTheTextAfterMinTokens) {
  const auto engine = open_generation();
  GenerateRequest request = generation_request(*engine, "Once upon a time", 40);
  request.sampling.temperature = 0;
  const std::vector<int32_t> whole = engine->generate(request)->tokens;
  request.stop_tokens = {whole[7]};
  const auto first = std::find(whole.begin(), whole.end(), whole[7]);
  const auto ended = engine->generate(request).value();
  EXPECT_EQ(ended.reason, FinishReason::kStop);
  EXPECT_EQ(ended.tokens, std::vector<int32_t>(whole.begin(), first));
  // Before, another token is taken in its place.
  request.min_tokens = 20;
  const auto later = engine->generate(request).value();
  EXPECT_GE(later.tokens.size(), 20u);
  EXPECT_EQ(std::count(later.tokens.begin(), later.tokens.end(), whole[7]), 0);
  EXPECT_TRUE(std::equal(whole.begin(), first, later.tokens.begin()));
  // The model's own, too, but a text that a constraint has completed ends.
  request.stop_tokens.clear();
  request.ignore_stop_tokens = false;
  request.min_tokens = 30;
  EXPECT_GE(engine->generate(request)->tokens.size(), 30u);
  request.constraint = {OutputConstraint::Kind::kRegex, "[a-z]{3}", {}};
  EXPECT_EQ(engine->generate(request)->text.size(), 3u);
  request.stop_tokens = {-1};
  EXPECT_EQ(engine->generate(request).status().code(), Code::invalid_argument);
}

TEST(Generation, CancelEndsARequestFromAnyThread) {
  const auto engine = open_generation();
  std::atomic<int> pieces{0};
  const auto running = engine
                           ->submit(generation_request(*engine, kPrompts[0], 4000),
                                    [&](const TextPiece&) {
                                      ++pieces;
                                      return true;
                                    })
                           .value();
  while (pieces < 3) std::this_thread::yield();
  running->cancel();
  const auto result = running->wait();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->reason, FinishReason::kCancelled);
  EXPECT_GE(result->tokens.size(), 3u);
  // A handle that is dropped cancels too.
  std::ignore = engine->submit(generation_request(*engine, kPrompts[0], 4000));
  EXPECT_TRUE(engine->generate(generation_request(*engine, kPrompts[1], 3)).ok());
}

TEST(Generation, TimeoutEndsARequestWithItsTextSoFar) {
  const auto engine = open_generation();
  GenerateRequest late = generation_request(*engine, kPrompts[0], 4000);
  late.timeout_ms = 1e-6;
  auto result = engine->generate(late);
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(result->reason, FinishReason::kTimeout);
  EXPECT_EQ(finish_reason_name(result->reason), "timeout");
  EXPECT_EQ(result->tokens.size(), 0u);
  // One that has begun keeps what it has: the callback holds the step until the deadline has passed.
  late.timeout_ms = 2000;
  const auto start = std::chrono::steady_clock::now();
  result = engine->generate(late, [&](const TextPiece& piece) {
    if (piece.token >= 0) std::this_thread::sleep_until(start + std::chrono::milliseconds(2100));
    return true;
  });
  EXPECT_EQ(result->reason, FinishReason::kTimeout);
  EXPECT_EQ(result->tokens.size(), 1u);
  EXPECT_EQ(engine->free_cache_tokens(), engine->batch_limits().cache_tokens);
  late.timeout_ms = -1;
  EXPECT_EQ(engine->generate(late).status().message(), "timeout_ms -1 must be finite and not negative");
}

TEST(Generation, StatsCountRequestsTokensAndSteps) {
  const auto engine = open_generation();
  const GenerateRequest first = generation_request(*engine, kPrompts[0], 5);
  const auto prompt = std::ssize(first.prompt);
  EngineStats inside;
  ASSERT_TRUE(engine
                  ->generate(first,
                             [&](const TextPiece&) {
                               inside = engine->stats();
                               return true;
                             })
                  .ok());
  EXPECT_EQ(inside.running, 1);
  EXPECT_EQ(inside.cache_pages_used, 1);
  GenerateRequest late = first;
  late.timeout_ms = 1e-6;
  ASSERT_TRUE(engine->generate(late).ok());
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.running + stats.waiting, 0);
  EXPECT_EQ(stats.prompt_tokens, prompt);
  EXPECT_EQ(stats.generated_tokens, 5);
  EXPECT_EQ(stats.steps, 5);
  EXPECT_GT(stats.step_seconds, 0);
  EXPECT_EQ(stats.requests_finished[static_cast<size_t>(FinishReason::kLength)], 1);
  EXPECT_EQ(stats.requests_finished[static_cast<size_t>(FinishReason::kTimeout)], 1);
  EXPECT_EQ(stats.requests_failed, 0);
  EXPECT_EQ(stats.cache_pages_used, 0);
  EXPECT_EQ(stats.cache_pages * stats.page_tokens, engine->batch_limits().cache_tokens);
}

TEST(Generation, CacheMemoryBoundsThePages) {
  TextEngineOptions options;
  options.cache_memory = 1;
  const Status status = TextEngine::open(kTales, options).status();
  EXPECT_THAT(status.message(), HasSubstr("cache_memory 1: one page of 32 tokens"));
  options.cache_memory = 0;
  options.cache_tokens = 32;
  const int64_t page_bytes =
      open_generation(options)->memory().kv_cache / open_generation(options)->info().context * 32;
  options.cache_tokens = 0;
  options.cache_memory = 5 * page_bytes + page_bytes / 2;
  EXPECT_EQ(open_generation(options)->batch_limits().cache_tokens, 5 * 32);
  options.cache_tokens = 3 * 32;  // the smaller one holds
  EXPECT_EQ(open_generation(options)->batch_limits().cache_tokens, 3 * 32);
  options.cache_memory = -1;
  EXPECT_THAT(TextEngine::open(kTales, options).status().message(), HasSubstr("cache_memory -1"));
}

TEST(PrefixReuse, ASecondTurnGivesTheSameTextAndComputesItsMessageOnly) {
  TextEngineOptions without;
  without.prefix_cache = false;
  const auto plain = open_generation(without), engine = open_generation();
  GenerateRequest turn = generation_request(*engine, "Once upon a time there was a little dog", 40);
  for (int i = 0; i < 4; ++i) {
    const auto want = plain->generate(turn), got = engine->generate(turn);
    ASSERT_TRUE(want.ok() && got.ok());
    EXPECT_EQ(got->tokens, want->tokens);
    EXPECT_EQ(want->cached_tokens, 0);
    EXPECT_EQ(want->cache_miss, CacheMiss::kDisabled);
    // The last token of an answer is sampled and never computed.
    const auto known = std::ssize(turn.prompt) - 5;
    EXPECT_EQ(got->cached_tokens, i == 0 ? 0 : known);
    EXPECT_EQ(got->cache_miss, CacheMiss::kNotStored);
    turn.prompt.append(got->tokens);
    for (int32_t id = 0; id < 4; ++id) turn.prompt.push_back(100 + id);
  }
  turn.prompt.truncate(turn.prompt.size() - 44);
  const auto again = engine->generate(turn);
  EXPECT_EQ(again->cached_tokens, std::ssize(turn.prompt) - 1);
  EXPECT_EQ(again->cache_miss, CacheMiss::kNone);
  EXPECT_EQ(again->tokens, plain->generate(turn)->tokens);
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.cache_pages_used, 0);
  EXPECT_GT(stats.cache_pages_stored, 4);
  EXPECT_GT(stats.cached_prompt_tokens, 4 * 40);
  EXPECT_EQ(engine->free_cache_tokens(), engine->batch_limits().cache_tokens);
}

TEST(PrefixReuse, ARequestStartsFromAnotherThatRuns) {
  const auto engine = open_generation();
  const GenerateRequest first = generation_request(*engine, "Once upon a time there was a little dog", 70);
  std::shared_ptr<Generation> second;
  const auto result = engine->generate(first, [&](const TextPiece& piece) {
    if (!second && piece.token >= 0)
      second = engine
                   ->submit([&] {
                     GenerateRequest r = first;
                     while (r.prompt.size() < 40) r.prompt.push_back(7);
                     return r;
                   }())
                   .value();
    return true;
  });
  GenerateRequest third = first;
  third.prompt.append(result->tokens);
  EXPECT_EQ(second->wait()->cached_tokens, 0);  // no whole page is shared yet
  EXPECT_EQ(engine->generate(third)->cached_tokens, std::ssize(third.prompt) - 1);
}

TEST(PrefixReuse, PromptsWithACommonBeginningComputeItOnce) {
  TextEngineOptions options;
  options.max_batch_tokens = 64;
  options.max_sequences = 16;
  const auto engine = open_generation(options);
  options.prefix_cache = false;
  const auto plain = open_generation(options);
  std::vector<GenerateRequest> requests;
  std::vector<std::shared_ptr<Generation>> running;
  std::shared_ptr<Generation> first;
  std::vector<int32_t> common;
  for (int32_t i = 0; i < 200; ++i) common.push_back(3 + i * 37 % 900);
  for (int32_t i = 0; i < 16; ++i) {
    GenerateRequest& r = requests.emplace_back(generation_request(*engine, kPrompts[0], 12));
    r.prompt = common;
    for (int32_t k = 0; k <= i; ++k) r.prompt.push_back(50 + i);
    r.client = i % 2 ? "odd" : "";
    r.priority = i == 9;
  }
  // All wait when the first step is planned.
  const auto leader = engine->generate(generation_request(*engine, kPrompts[1], 2), [&](const TextPiece&) {
    if (running.empty())
      for (const GenerateRequest& r : requests) running.push_back(engine->submit(r).value());
    return true;
  });
  int64_t cached = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto result = running[i]->wait();
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->tokens, plain->generate(requests[i])->tokens) << i;
    cached += result->cached_tokens;
  }
  EXPECT_EQ(cached, 15 * 192);
  EXPECT_EQ(engine->stats().cached_prompt_tokens, cached);
  EXPECT_EQ(engine->free_cache_tokens(), engine->batch_limits().cache_tokens);
}

TEST(PrefixReuse, SaltsAreKeptApart) {
  const auto engine = open_generation();
  GenerateRequest r = generation_request(*engine, "Once upon a time there was a little dog", 4);
  r.cache_salt = "one";
  ASSERT_TRUE(engine->generate(r).ok());
  EXPECT_EQ(engine->generate(r)->cached_tokens, std::ssize(r.prompt) - 1);
  r.cache_salt = "two";
  const auto other = engine->generate(r);
  EXPECT_EQ(other->cached_tokens, 0);
  EXPECT_EQ(cache_miss_name(other->cache_miss), "not_stored");
}

TEST(PrefixReuse, EvictedPrefixesAreRecomputed) {
  TextEngineOptions options;
  options.cache_tokens = 4 * 32;
  const auto engine = open_generation(options);
  GenerateRequest first = generation_request(*engine, "Once upon a time there was a little dog", 60);
  while (first.prompt.size() < 40) first.prompt.push_back(7);
  const GenerateRequest other = generation_request(*engine, "The cat sat on a tree and looked at the moon", 60);
  const auto want = engine->generate(first)->tokens;
  ASSERT_TRUE(engine->generate(other).ok());
  const auto got = engine->generate(first);
  EXPECT_EQ(got->tokens, want);
  EXPECT_EQ(got->cached_tokens, 32);
  EXPECT_EQ(got->cache_miss, CacheMiss::kEvicted);
  EXPECT_EQ(engine->free_cache_tokens(), 4 * 32);
}

// Layers with a sliding window keep the pages at the end of a text; layers without a window share the tree with them.
TEST(PrefixReuse, ModelsWithWindowsGoOnFromTheEndOfATurn) {
  for (const std::string model : {"mistral_window", "mistral_window1", "qwen2_layer_types", "qwen3_bias_window"}) {
    TextEngineOptions options;
    options.threads = 1;
    options.dtype = ComputeType::kF32;
    options.prefix_cache = false;
    const std::string path = std::string(REDLINE_GOLDEN_DIR) + "/" + model;
    const auto plain = TextEngine::open(path, options).value();
    options.prefix_cache = true;
    const auto engine = TextEngine::open(path, options).value();
    GenerateRequest turn;
    turn.sampling.temperature = 1;
    turn.ignore_stop_tokens = true;
    turn.max_tokens = std::min<int64_t>(40, engine->info().context / 4);
    for (int32_t id = 0; id < 8; ++id) turn.prompt.push_back(id * 3 % static_cast<int32_t>(engine->info().vocab_size));
    for (int i = 0; i < 3; ++i) {
      const auto want = plain->generate(turn), got = engine->generate(turn);
      ASSERT_TRUE(want.ok() && got.ok()) << model;
      EXPECT_EQ(got->tokens, want->tokens) << model << " turn " << i;
      EXPECT_EQ(got->cached_tokens, i == 0 ? 0 : std::ssize(turn.prompt) - 2) << model;
      turn.prompt.append(got->tokens);
      turn.prompt.push_back(5);
    }
  }
}

// Where all layers have windows, a prompt may be longer than the cache.
TEST(PrefixReuse, AWindowIsEnoughForALongPrompt) {
  TextEngineOptions options;
  options.threads = 1;
  options.dtype = ComputeType::kF32;
  options.context = 600;
  options.max_sequences = 1;
  options.max_batch_tokens = 16;
  const auto engine = TextEngine::open(std::string(REDLINE_GOLDEN_DIR) + "/mistral_window", options).value();
  ASSERT_LT(engine->batch_limits().cache_tokens, 500);
  GenerateRequest r;
  for (int32_t i = 0; i < 500; ++i) r.prompt.push_back(i * 7 % 60);
  r.max_tokens = 5;
  r.sampling.temperature = 0;
  r.ignore_stop_tokens = true;
  const auto first = engine->generate(r), again = engine->generate(r);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  EXPECT_EQ(again->cached_tokens, 499);
  EXPECT_EQ(again->tokens, first->tokens);
  EXPECT_EQ(engine->free_cache_tokens(), engine->batch_limits().cache_tokens);
}

TEST(PrefixReuse, RopeThatDependsOnTheLengthSharesNothing) {
  const auto engine = TextEngine::open(std::string(REDLINE_GOLDEN_DIR) + "/rope_dynamic").value();
  GenerateRequest r;
  r.prompt = {1, 2, 3, 4};
  r.max_tokens = 2;
  ASSERT_TRUE(engine->generate(r).ok());
  EXPECT_EQ(engine->generate(r)->cache_miss, CacheMiss::kDisabled);
}

TEST(Generation, ClosingTheEngineEndsWhatRuns) {
  std::shared_ptr<Generation> running;
  {
    const auto engine = open_generation();
    running = engine->submit(generation_request(*engine, kPrompts[0], 4000)).value();
  }
  EXPECT_EQ(running->wait().value().reason, FinishReason::kCancelled);
}

TEST(Generation, ACallbackMayUseTheEngine) {
  const auto engine = open_generation();
  int64_t free_tokens = 0;
  const auto result = engine->generate(generation_request(*engine, kPrompts[0], 3), [&](const TextPiece&) {
    const std::vector<int32_t> tokens = {1, 2};
    EXPECT_TRUE(engine->new_sequence().value()->forward(tokens).ok());
    free_tokens = engine->free_cache_tokens();
    return true;
  });
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(free_tokens, engine->batch_limits().cache_tokens - 32);
}

TEST(Generation, ACallbackThatWaitsForAnotherRequestIsAnError) {
  const auto engine = open_generation();
  std::shared_ptr<Generation> submitted;
  const auto result = engine->generate(generation_request(*engine, kPrompts[0], 1), [&](const TextPiece&) {
    if (submitted) return true;
    const auto nested = engine->generate(generation_request(*engine, kPrompts[1], 1));
    EXPECT_THAT(nested.status().message(), HasSubstr("generate() inside a callback of the same engine"));
    submitted = engine->submit(generation_request(*engine, kPrompts[1], 2)).value();
    EXPECT_THAT(submitted->wait().status().message(), HasSubstr("wait() inside a callback of the same engine"));
    return true;
  });
  ASSERT_TRUE(result.ok());
  ASSERT_TRUE(submitted);
  EXPECT_EQ(submitted->wait().value().tokens.size(), 2u);
  EXPECT_THAT(submitted->wait().status().message(), HasSubstr("has been taken"));
}

TEST(Generation, AnExceptionOfACallbackEndsItsRequestOnly) {
  const auto engine = open_generation();
  const auto other = engine->submit(generation_request(*engine, kPrompts[1], 20)).value();
  const auto result = engine->generate(generation_request(*engine, kPrompts[0], 5),
                                       [](const TextPiece&) -> bool { throw std::runtime_error("no"); });
  EXPECT_EQ(result.status().message(), "on_piece has thrown an exception");
  EXPECT_EQ(other->wait().value().tokens.size(), 20u);
  EXPECT_EQ(engine->generate(generation_request(*engine, kPrompts[0], 5)).value().tokens.size(), 5u);
}

// At the end of its page a generation_request needs the page that the prompt of the next one would take.
TEST(Generation, NoDeadlockOfARequestAtAPageBorderAndAPrompt) {
  TextEngineOptions options;
  options.cache_tokens = 3 * 32;
  const auto engine = open_generation(options);
  const auto of_length = [&](size_t length, int64_t max_tokens) {
    GenerateRequest r = generation_request(*engine, kPrompts[0], max_tokens);
    while (r.prompt.size() < length) r.prompt.push_back(r.prompt.tokens()[r.prompt.size() % 4]);
    return r;
  };
  for (size_t first = 28; first < 34; ++first) {
    std::shared_ptr<Generation> second;
    const auto result = engine->generate(of_length(first, 20), [&](const TextPiece& piece) {
      if (!second && piece.token >= 0) second = engine->submit(of_length(40, 20)).value();
      return true;
    });
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    EXPECT_EQ(result->tokens.size(), 20u);
    EXPECT_EQ(second->wait().value().tokens.size(), 20u);
    EXPECT_EQ(engine->free_cache_tokens(), 3 * 32);  // free when wait() returns
  }
}

TEST(Generation, CancellingTheRunningRequestLetsTheWaitingOneRun) {
  TextEngineOptions options;
  options.cache_tokens = 3 * 32;
  const auto engine = open_generation(options);
  GenerateRequest large = generation_request(*engine, kPrompts[0], 60);
  while (large.prompt.size() < 60) large.prompt.push_back(large.prompt.tokens()[1]);
  std::shared_ptr<Generation> first, second;
  std::atomic<int> pieces{0};
  first = engine
              ->submit(large,
                       [&](const TextPiece&) {
                         ++pieces;
                         return true;
                       })
              .value();
  while (pieces == 0) std::this_thread::yield();
  second = engine->submit(large).value();
  first->cancel();
  EXPECT_EQ(first->wait().value().reason, FinishReason::kCancelled);
  const auto result = second->wait();
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(result->reason, FinishReason::kLength);
  EXPECT_EQ(result->tokens.size(), 37u);  // 96 tokens fit, and one comes from their last logits
}

TEST(Sequence, RollbackOfAnAppendThatFailsHalfway) {
  TextEngineOptions options;
  options.cache_tokens = 4 * 32;
  options.max_batch_tokens = 16;
  const auto engine = open_generation(options);
  const std::vector<int32_t> tokens(30, 7), many(200, 8);
  const auto a = engine->new_sequence().value(), b = engine->new_sequence().value();
  ASSERT_TRUE(a->forward(tokens).ok());
  ASSERT_TRUE(b->forward(tokens).ok());
  EXPECT_EQ(a->forward(many).status().code(), Code::out_of_memory);
  EXPECT_EQ(a->length(), 30);
  EXPECT_EQ(a->forward(tokens).value(), b->forward(tokens).value());
}

TEST(Sequence, AForkGoesItsOwnWay) {
  const auto engine = open_generation();
  const std::vector<int32_t> tokens = engine->encode("Once upon a time there was a dog").value();
  const auto first = std::span(tokens).first(5), rest = std::span(tokens).subspan(5);
  const auto whole = engine->new_sequence().value();
  const std::vector<float> want = whole->forward(tokens).value();

  const auto a = engine->new_sequence().value();
  ASSERT_TRUE(a->forward(first).ok());
  const auto b = a->fork().value();
  const int64_t shared = engine->free_cache_tokens();
  const std::vector<int32_t> astray = {7, 8, 9};
  ASSERT_TRUE(b->forward(astray).ok());
  EXPECT_EQ(engine->free_cache_tokens(), shared - engine->batch_limits().page_tokens);  // its copy of the last page
  EXPECT_EQ(a->forward(rest).value(), want);
  EXPECT_EQ(b->truncate(5), 5);
  EXPECT_EQ(b->forward(rest).value(), want);
}

TEST(Runtime, EnginesShareItsWorkers) {
  const auto runtime = Runtime::open({.threads = 2}).value();
  EXPECT_EQ(runtime->threads(), 2);
  TextEngineOptions options;
  options.runtime = runtime;
  const auto want = alone(20);
  const auto first = open_generation(options), second = open_generation(options);
  EXPECT_EQ(first->info().threads, 2);
  std::vector<int32_t> got[2];
  std::thread other([&] { got[1] = second->generate(generation_request(*second, kPrompts[1], 20)).value().tokens; });
  got[0] = first->generate(generation_request(*first, kPrompts[0], 20)).value().tokens;
  other.join();
  EXPECT_EQ(got[0], want[0]);
  EXPECT_EQ(got[1], want[1]);

  options.threads = 3;
  EXPECT_EQ(TextEngine::open(kTales, options).status().message(), "threads 3: the shared runtime has 2");
  options.threads = 0;
  options.trace_file = "trace.json";
  EXPECT_THAT(TextEngine::open(kTales, options).status().message(), HasSubstr("a shared runtime writes one timeline"));
}

}  // namespace
}  // namespace redline
