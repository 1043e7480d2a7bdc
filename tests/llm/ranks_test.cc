// Tensor parallelism: two ranks on two threads, which get the steps as bytes, give the bits of one process that
// computes with the same cuts and the same order of sums, and the logits of the whole model within float32 rounding.
#include <gmock/gmock.h>

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>

#include "graph/ops/all_reduce.h"
#include "graph/shard.h"
#include "runtime/interpreter.h"
#include "support/isa_test.h"
#include "support/steppers.h"

namespace redline::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kRankVocab = 64;  // of the golden models

/// Steps on their way to another rank.
class StepQueue {
 public:
  void push(std::string bytes) {
    std::lock_guard lock(mutex_);
    bytes_.push_back(std::move(bytes));
    changed_.notify_all();
  }
  void close() { push(""); }
  /// Returns the next step; "" at the end.
  std::string pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !bytes_.empty(); });
    std::string bytes = std::move(bytes_.front());
    bytes_.pop_front();
    return bytes;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> bytes_;
};

/// The steppers of all ranks of a model.
class RankSteppers {
 public:
  RankSteppers(const std::string& model, const CpuKernels& kernels, int ranks, const TextEngineOptions& options,
               double timeout_seconds = 60)
      : groups_(make_thread_ranks(ranks, {.timeout_seconds = timeout_seconds}).value()) {
    for (int r = 0; r < ranks; ++r) {
      StepModel part = golden_step_model(model, kernels, options.dtype);
      vocab_size_ = part.vocab_size;
      const Shard how = {ranks, r, groups_[static_cast<size_t>(r)], true};
      const Status status = shard(part.graph, how);
      EXPECT_TRUE(status.ok()) << status.to_string();
      graphs_.push_back(part.graph);
      steppers_.push_back(make_stepper(std::move(part), kernels, 1 + r % 2, options));
    }
  }
  /// Returns false, after a failed test, if a rank could not be opened.
  bool is_open() const {
    return std::all_of(steppers_.begin(), steppers_.end(),
                       [](const OwnStepper& each) { return each.stepper != nullptr; });
  }
  Stepper& operator[](size_t rank) { return *steppers_[rank].stepper; }
  RankGroup& group(size_t rank) { return *groups_[rank]; }
  const Graph& graph(size_t rank) const { return graphs_[rank]; }

  /// Calls body(rank 0's stepper, a function that sends a step to the others) while the other ranks execute what is
  /// sent. Returns the logits of the steps of rank 1.
  template <class Body>
  std::vector<std::vector<float>> run(const Body& body) {
    std::vector<StepQueue> queues(steppers_.size());
    std::vector<std::thread> threads;
    std::vector<std::vector<float>> logits;
    for (size_t r = 1; r < steppers_.size(); ++r)
      threads.emplace_back([&, r] {
        for (;;) {
          const std::string bytes = queues[r].pop();
          if (bytes.empty()) return;
          const Result<StepMessage> message = StepMessage::from_bytes(bytes);
          EXPECT_TRUE(message.ok()) << message.status().to_string();
          std::vector<float> own = execute((*this)[r], *message, vocab_size_);
          if (r == 1) logits.push_back(std::move(own));
        }
      });
    body((*this)[0], [&](const StepMessage& message) {
      for (size_t r = 1; r < steppers_.size(); ++r) queues[r].push(*message.to_bytes());
      return Status();
    });
    for (StepQueue& queue : queues) queue.close();
    for (std::thread& thread : threads) thread.join();
    return logits;
  }

 private:
  int64_t vocab_size_ = 0;
  std::vector<std::shared_ptr<RankGroup>> groups_;
  std::vector<Graph> graphs_;
  std::vector<OwnStepper> steppers_;
};

std::vector<float> all_of(const std::vector<RecordedStep>& steps) {
  std::vector<float> logits;
  for (const RecordedStep& step : steps) logits.insert(logits.end(), step.logits.begin(), step.logits.end());
  return logits;
}

void expect_ranks_like_one(const std::string& model, const CpuKernels& kernels, int ranks, ComputeType dtype) {
  SCOPED_TRACE(::testing::Message() << model << ", " << ranks << " ranks, dtype " << static_cast<int>(dtype));
  const TextEngineOptions options = stepper_options(dtype);
  StepModel in_order = golden_step_model(model, kernels, dtype);
  const int64_t vocab = in_order.vocab_size;
  const Status divided = shard(in_order.graph, {.ranks = ranks});
  ASSERT_TRUE(divided.ok()) << divided.to_string();
  OwnStepper one = make_stepper(std::move(in_order), kernels, 2, options);
  ASSERT_TRUE(one.stepper);
  const std::vector<float> want = all_of(run_script(*one.stepper, vocab));
  ASSERT_FALSE(want.empty());

  RankSteppers steppers(model, kernels, ranks, options);
  ASSERT_TRUE(steppers.is_open());
  std::vector<RecordedStep> steps;
  const auto others = steppers.run([&](Stepper& first, const auto& send) { steps = run_script(first, vocab, send); });
  EXPECT_EQ(all_of(steps), want);
  ASSERT_EQ(others.size(), steps.size());
  for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(others[i], steps[i].logits) << "rank 1, step " << i;

  // Each of both computations is off by up to 2.5e-6 of the largest logit in float32, as transformers' own is
  // (tests/golden/make_golden.py).
  if (dtype != ComputeType::kF32) return;
  OwnStepper whole = make_stepper(golden_step_model(model, kernels), kernels, 2, options);
  ASSERT_TRUE(whole.stepper);
  const std::vector<float> unsharded = all_of(run_script(*whole.stepper, vocab));
  ASSERT_EQ(unsharded.size(), want.size());
  const Difference d = difference(want.data(), unsharded.data(), std::ssize(want) / vocab, vocab);
  EXPECT_LE(d.all, 5e-6);
}

class Ranks : public IsaTest {};

TEST_P(Ranks, TwoThreadsGiveTheBitsOfOneInRankOrder) {
  for (const char* model : {"llama_gqa", "mixtral", "llama_mha_tied", "qwen2_moe"})
    for (const ComputeType dtype : {ComputeType::kF32, ComputeType::kAuto})
      expect_ranks_like_one(model, kernels(), 2, dtype);
  expect_ranks_like_one("llama_mha_tied", kernels(), 4, ComputeType::kF32);
}

// Block formats, and matrices converted to w8a8 in parts.
TEST_P(Ranks, QuantizedWeightsGiveTheBitsOfOneInRankOrder) {
  for (const char* model : {"random:tiny:q8_0", "random:tiny:q4_0", "random:tiny-moe:q4_0", "random:tiny:bf16"})
    expect_ranks_like_one(model, kernels(), 2, ComputeType::kAuto);
  expect_ranks_like_one("random:tiny:f32", kernels(), 2, ComputeType::kW8A8);
}
REDLINE_INSTANTIATE_PER_ISA(Ranks);

// Every family: its logits in parts are those of PyTorch, or an op or a number that cannot be divided is named.
TEST(RankFamilies, LogitsInPartsMatchTransformersOrTheOpIsNamed) {
  const CpuKernels& kernels = **cpu_kernels();
  int divided = 0;
  std::string refused;
  for (const std::string& model : golden_models()) {
    if (model.ends_with(".gguf")) continue;
    SCOPED_TRACE(model);
    const Golden golden = load_golden(golden_folder(model));
    if (golden.tokens.size() > 60 || golden.logits.dim(1) != kRankVocab) continue;
    StepModel in_order = golden_step_model(model, kernels);
    const Status status = shard(in_order.graph, {.ranks = 2});
    if (!status.ok()) {
      EXPECT_TRUE(status.code() == Code::unsupported || status.code() == Code::invalid_argument);
      EXPECT_THAT(status.message(), ::testing::StartsWith("shard: "));
      refused += fmt::format("{}: {}\n", model, status.message());
      continue;
    }
    const TextEngineOptions options = stepper_options();
    OwnStepper one = make_stepper(std::move(in_order), kernels, 1, options);
    ASSERT_TRUE(one.stepper);
    const std::vector<float> logits = run_prompt(*one.stepper, golden.tokens, kRankVocab);
    ASSERT_EQ(logits.size(), golden.logits.values.size());
    const Difference d = difference(logits.data(), golden.logits.values.data(), std::ssize(golden.tokens), kRankVocab);
    EXPECT_LE(d.all, 2e-5);  // the bound of whole models, tests/models/golden_test.cc
    RankSteppers steppers(model, kernels, 2, options);
    ASSERT_TRUE(steppers.is_open());
    std::vector<float> own;
    steppers.run([&](Stepper& first, const auto& send) { own = run_prompt(first, golden.tokens, kRankVocab, send); });
    EXPECT_EQ(own, logits);
    ++divided;
  }
  EXPECT_GT(divided, 30);
  std::printf("%d models are divided; these are not:\n%s", divided, refused.c_str());
}

int64_t weight_bytes(const Graph& graph, bool only_whole) {
  int64_t bytes = 0;
  for (const ValueInfo& value : graph.values)
    if (value.kind == ValueKind::kWeight && (!only_whole || value.name.find('[') == std::string::npos))
      bytes += value.weight.view.bytes();
  return bytes;
}

TEST(RankMemory, ARankHoldsItsPartsAndItsHeads) {
  const CpuKernels& kernels = **cpu_kernels();
  const Graph whole = golden_step_model("llama_gqa", kernels).graph;
  RankSteppers steppers("llama_gqa", kernels, 2, stepper_options());
  ASSERT_TRUE(steppers.is_open());
  const int64_t replicated = weight_bytes(steppers.graph(0), true);
  EXPECT_EQ(weight_bytes(steppers.graph(0), false) + weight_bytes(steppers.graph(1), false),
            weight_bytes(whole, false) + replicated);
  // Embeddings, output matrix and norms: 64 x 32 twice and 5 x 32 float32 numbers.
  EXPECT_EQ(replicated, (2 * 64 * 32 + 5 * 32) * 4);
  OwnStepper one = make_stepper(golden_step_model("llama_gqa", kernels), kernels, 1);
  EXPECT_EQ(2 * steppers[0].executable().states().groups[0].page_bytes,
            one.stepper->executable().states().groups[0].page_bytes);
  EXPECT_LT(steppers[0].executable().weight_bytes(), one.stepper->executable().weight_bytes() * 3 / 4);
}

// One rank costs nothing: its graph and program are those of a model that is not divided, without an op more.
TEST(RankProgram, OneRankChangesNothing) {
  const CpuKernels& kernels = **cpu_kernels();
  for (const char* model : {"llama_gqa", "mixtral"}) {
    StepModel plain = golden_step_model(model, kernels), one = golden_step_model(model, kernels);
    const auto groups = make_thread_ranks(1).value();
    ASSERT_TRUE(shard(one.graph, {.ranks = 1, .rank = 0, .group = groups[0]}).ok());
    EXPECT_EQ(one.graph.to_string(), plain.graph.to_string());
    OwnStepper a = make_stepper(std::move(plain), kernels, 2), b = make_stepper(std::move(one), kernels, 2);
    EXPECT_EQ(a.stepper->executable().describe(), b.stepper->executable().describe());
    EXPECT_THAT(b.stepper->executable().describe(), ::testing::Not(HasSubstr("all_reduce")));
    EXPECT_NE(b.stepper->executable().program(), nullptr);
  }
}

TEST(RankFailure, AMissingRankIsNamedAndTheSequenceIsUnchanged) {
  const CpuKernels& kernels = **cpu_kernels();
  RankSteppers steppers("llama_gqa", kernels, 2, stepper_options(), 0.2);
  ASSERT_TRUE(steppers.is_open());
  SequenceState state(steppers[0].pool());
  const std::vector<int32_t> tokens = {3, 4, 5};
  StepEntry entry;
  entry.state = &state;
  entry.tokens = PromptView(tokens);
  entry.logit_rows = 1;
  std::lock_guard lock(steppers[0].mutex());
  for (int again = 0; again < 2; ++again) {
    const Status status = steppers[0].step({&entry, 1});
    EXPECT_EQ(status.code(), Code::internal);
    EXPECT_THAT(status.message(), HasSubstr("of 2 ranks, 1 did not arrive within 0.2 s"));
    EXPECT_THAT(status.message(), HasSubstr("layers.0.self_attn.o_proj"));
    EXPECT_EQ(state.length(), 0);
  }
}

TEST(RankFailure, AFailedRankEndsTheStepsOfAll) {
  const CpuKernels& kernels = **cpu_kernels();
  RankSteppers steppers("llama_gqa", kernels, 2, stepper_options());
  ASSERT_TRUE(steppers.is_open());
  std::thread other([&] { steppers.group(1).fail(Status(Code::out_of_memory, "rank 1 has no memory")); });
  SequenceState state(steppers[0].pool());
  const std::vector<int32_t> tokens = {3, 4, 5};
  StepEntry entry;
  entry.state = &state;
  entry.tokens = PromptView(tokens);
  entry.logit_rows = 1;
  {
    std::lock_guard lock(steppers[0].mutex());
    const Status status = steppers[0].step({&entry, 1});
    EXPECT_EQ(status.code(), Code::out_of_memory);
    EXPECT_EQ(status.message(), "rank 1 has no memory");
  }
  other.join();
}

TEST(RankErrors, NumbersAndOpsThatCannotBeDividedAreNamed) {
  const CpuKernels& kernels = **cpu_kernels();
  const auto error = [&](const char* model, const Shard& how) {
    Graph graph = golden_step_model(model, kernels).graph;
    return std::string(shard(graph, how).message());
  };
  EXPECT_THAT(error("llama_gqa", {.ranks = 3}),
              HasSubstr("layers.0.self_attn.attention: 4 attention heads do not divide"));
  EXPECT_THAT(error("llama_one_kv_head", {.ranks = 2}), HasSubstr("1 key-value heads do not divide over 2 ranks"));
  EXPECT_THAT(error("llama_gqa", {.ranks = 2, .rank = 2}), HasSubstr("rank 2 of 2"));
  EXPECT_THAT(error("llama_gqa", {.ranks = 2, .rank = 0}), HasSubstr("needs the group"));
  const auto groups = make_thread_ranks(2).value();
  EXPECT_THAT(error("llama_gqa", {.ranks = 2, .rank = 0, .group = groups[1]}), HasSubstr("needs the group"));
  // Half of the 256 inputs of the output projection is half a block.
  EXPECT_THAT(
      error("random:tiny:q4_k", {.ranks = 2}),
      HasSubstr("self_attn.o_proj.weight: columns [0, 128) cut through blocks of q4_k, which hold 256 elements"));
  // Latent attention has one key-value head, and OLMo 2 a norm over all heads.
  EXPECT_THAT(error("olmo2", {.ranks = 2, .rank = 0, .group = groups[0]}), HasSubstr("is not divided among 2 ranks"));
  EXPECT_THAT(error("deepseek_v2", {.ranks = 2}), HasSubstr("1 key-value heads do not divide"));
}

}  // namespace
}  // namespace redline::testing
