// Sampling on the workers, and what a step gave delivered beside the next one.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "llm/generation_loop.h"
#include "redline/text.h"
#include "support/bundled.h"

namespace redline {
namespace {

std::unique_ptr<TextEngine> open_delivery(int threads) {
  TextEngineOptions options;
  options.threads = threads;
  options.dtype = ComputeType::kF32;  // a sequence has the same bits in any batch
  options.context = 256;
  auto engine = TextEngine::open(kTales, options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return std::move(engine).value();
}

/// Requests with every way to choose a token and to end a text.
std::vector<GenerateRequest> mixed(const TextEngine& engine) {
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 16; ++i) {
    GenerateRequest& r = requests.emplace_back();
    r.prompt = engine.encode(i % 2 ? "Once upon a time" : "The little dog").value();
    r.sampling.temperature = i % 5 == 0 ? 0.0f : 1.0f;
    r.sampling.top_p = i % 3 == 0 ? 0.9f : 1.0f;
    r.sampling.top_k = i % 4 == 1 ? 40 : 0;
    r.sampling.repetition_penalty = i % 4 == 2 ? 1.2f : 1.0f;
    r.sampling.seed = static_cast<uint64_t>(100 + i);
    r.max_tokens = 20 + i;
    r.num_logprobs = i % 3 - 1;
    if (i % 4 == 3) r.stop = {" the", "dog"};
    if (i == 6) r.constraint = {OutputConstraint::Kind::kRegex, "[a-z]{3,12}( [a-z]{2,9}){4}\\.", {}};
    if (i == 13)
      r.constraint = {OutputConstraint::Kind::kJsonSchema, R"({"type":"array","items":{"type":"integer"}})", {}};
    if (i == 14) r.constraint = {OutputConstraint::Kind::kChoice, "", {"yes", "no", "perhaps"}};
  }
  return requests;
}

struct Output {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::string text, pieces;
  FinishReason reason = FinishReason::kStop;
  bool operator==(const Output&) const = default;
};
auto collect(Output& out) {
  return [&out](const TextPiece& piece) {
    out.pieces += piece.text;
    if (piece.token < 0) return true;
    out.logprobs.push_back(piece.logprob);
    for (const TokenLogprob& top : piece.top) out.logprobs.push_back(top.logprob);
    return true;
  };
}
void take(Output& out, Result<GenerateResult> result) {
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  out.tokens = result->tokens;
  out.text = result->text;
  out.reason = result->reason;
}

TEST(Delivery, TextsDoNotDependOnThreadsNorOnWhoRunsTheSteps) {
  std::vector<Output> want(16);
  {
    const auto engine = open_delivery(1);
    const auto requests = mixed(*engine);
    for (size_t i = 0; i < requests.size(); ++i) take(want[i], engine->generate(requests[i], collect(want[i])));
  }
  EXPECT_EQ(want[3].reason, FinishReason::kStop);
  for (const int threads : {1, 2, 3}) {
    const auto engine = open_delivery(threads);
    const auto requests = mixed(*engine);
    std::vector<Output> got(16);
    std::vector<std::shared_ptr<Generation>> running;
    for (size_t i = 0; i < requests.size(); ++i)
      running.push_back(engine->submit(requests[i], collect(got[i])).value());
    int64_t tokens = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      take(got[i], running[i]->wait());
      EXPECT_TRUE(got[i] == want[i]) << "request " << i << ", " << threads << " threads:\n"
                                     << got[i].text << "\n"
                                     << want[i].text;
      EXPECT_EQ(got[i].text, got[i].pieces);
      tokens += std::ssize(got[i].tokens);
    }
    EXPECT_EQ(engine->stats().generated_tokens, tokens);
    EXPECT_EQ(engine->free_cache_tokens(), engine->batch_limits().cache_tokens);
  }
}

// The callback of a submitted request waits for the next step, which would never come if it had to wait for the
// callback.
TEST(Delivery, CallbacksRunBesideTheNextStep) {
  const auto engine = open_delivery(2);
  GenerateRequest r;
  r.prompt = engine->encode("Once upon a time").value();
  r.max_tokens = 6;
  r.ignore_stop_tokens = true;
  std::atomic<int> saw_next{0};
  int tokens = 0;
  const auto running = engine
                           ->submit(r,
                                    [&](const TextPiece& piece) {
                                      if (piece.token < 0 || ++tokens == 6) return true;
                                      const int64_t steps = tokens;  // one per token
                                      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
                                      while (engine->stats().steps <= steps && std::chrono::steady_clock::now() < end)
                                        std::this_thread::yield();
                                      saw_next += engine->stats().steps > steps;
                                      return true;
                                    })
                           .value();
  EXPECT_EQ(running->wait()->tokens.size(), 6u);
  EXPECT_EQ(saw_next, 5);
}

/// Holds up the constraints of the client "slow" until it is opened.
class SlowConstraints {
 public:
  SlowConstraints() {
    GenerationLoop::on_prepare = [opened = opened_](const std::string& client) {
      if (client == "slow") opened.wait();
    };
  }
  ~SlowConstraints() {
    open();
    engine.reset();
    GenerationLoop::on_prepare = nullptr;
  }
  void open() {
    if (!std::exchange(is_open_, true)) gate_.set_value();
  }
  std::unique_ptr<TextEngine> engine = open_delivery(2);
  GenerateRequest request(const std::string& client, int64_t tokens) const {
    GenerateRequest r;
    r.prompt = engine->encode("Once upon a time").value();
    r.sampling.temperature = 1;
    r.sampling.seed = 5;
    r.max_tokens = tokens;
    r.client = client;
    r.constraint = {OutputConstraint::Kind::kRegex, "[a-z ]{300}", {}};
    return r;
  }

 private:
  bool is_open_ = false;
  std::promise<void> gate_;
  const std::shared_future<void> opened_ = gate_.get_future().share();
};

// The mask of one request never comes: others, constrained or not, go on to their end meanwhile. Then it goes on, and
// its text is the one that it has alone.
TEST(Delivery, ASlowConstraintDelaysItsOwnRequestOnly) {
  SlowConstraints slow;
  Output alone;
  auto expected = slow.engine->generate(slow.request("", 12), collect(alone));
  ASSERT_TRUE(expected.ok()) << expected.status().to_string();

  std::atomic<int> tokens{0};
  const auto late = slow.engine->submit(slow.request("slow", 12), [&](const TextPiece& piece) {
    tokens += piece.token >= 0;
    return true;
  });
  ASSERT_TRUE(late.ok());
  for (const bool is_constrained : {false, true}) {
    GenerateRequest other = slow.request("other", 40);
    if (!is_constrained) other.constraint = {};
    other.ignore_stop_tokens = true;
    auto quick = slow.engine->submit(other);
    ASSERT_TRUE(quick.ok());
    EXPECT_EQ((*quick)->wait().value().tokens.size(), 40u);
  }
  EXPECT_FALSE((*late)->is_done());
  EXPECT_EQ(tokens, 0);  // its first token waits to be checked against the constraint
  slow.open();
  const auto result = (*late)->wait();
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(result->tokens, expected->tokens);
  EXPECT_EQ(tokens, 12);
}

TEST(Delivery, ARequestWhoseConstraintTakesLongCanBeCancelled) {
  SlowConstraints slow;
  const auto late = slow.engine->submit(slow.request("slow", 12));
  auto quick = slow.engine->submit(slow.request("other", 30));
  ASSERT_TRUE((*quick)->wait().ok());
  (*late)->cancel();
  ASSERT_TRUE((*slow.engine->submit(slow.request("other", 3)))->wait().ok());
  slow.open();
  const auto result = (*late)->wait();
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(result->reason, FinishReason::kCancelled);
}

TEST(Delivery, ClosingTheEngineWaitsForConstraintsThatTakeLong) {
  SlowConstraints slow;
  const auto late = slow.engine->submit(slow.request("slow", 12));
  ASSERT_TRUE((*slow.engine->submit(slow.request("other", 5)))->wait().ok());
  std::thread closing([&] { slow.engine.reset(); });
  slow.open();
  closing.join();
  EXPECT_EQ((*late)->wait().value().reason, FinishReason::kCancelled);
}

TEST(Delivery, ACallbackThatEndsItsRequestIsNotCalledAgain) {
  const auto engine = open_delivery(2);
  GenerateRequest r;
  r.prompt = engine->encode("Once upon a time").value();
  r.max_tokens = 200;
  r.ignore_stop_tokens = true;
  for (int last = 1; last < 6; ++last) {
    int calls = 0;
    const auto running = engine
                             ->submit(r,
                                      [&](const TextPiece& piece) {
                                        calls += piece.token >= 0;
                                        return calls < last;
                                      })
                             .value();
    const auto result = running->wait();
    EXPECT_EQ(result->reason, FinishReason::kCancelled);
    EXPECT_EQ(std::ssize(result->tokens), last);
    EXPECT_EQ(calls, last);
    EXPECT_EQ(engine->free_cache_tokens(), engine->batch_limits().cache_tokens);
  }
}

}  // namespace
}  // namespace redline
