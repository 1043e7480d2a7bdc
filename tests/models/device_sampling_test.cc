// Sampling on a tile device against the sampler of the CPU, whose tokens it must give.
#include <cmath>
#include <limits>

#include "graph/check_program.h"
#include "graph/ops/sample.h"
#include "graph/ops/scale.h"
#include "llm/sampler_draws.h"
#include "support/tile_harness.h"

namespace redline::test {
namespace {

constexpr float kExcludedLogit = -std::numeric_limits<float>::infinity();

struct DeviceSamplingCase {
  SamplingOptions options;
  std::vector<int32_t> prompt, output;  ///< taken modulo the vocabulary
};

/// Returns a case of each option that the device samples, and cases of several options together.
std::vector<DeviceSamplingCase> device_sampling_cases(int64_t vocab) {
  std::vector<DeviceSamplingCase> cases;
  const auto add = [&](const std::function<void(SamplingOptions&)>& set) -> DeviceSamplingCase& {
    DeviceSamplingCase& c = cases.emplace_back();
    c.options.seed = 7 * cases.size();
    set(c.options);
    return c;
  };
  add([](SamplingOptions& o) { o.temperature = 0; });
  add([](SamplingOptions&) {});
  add([](SamplingOptions& o) { o.temperature = 0.3f; });
  for (const int64_t k : {int64_t{1}, int64_t{5}, vocab, int64_t{1} << 40})
    add([&](SamplingOptions& o) { o.top_k = k; });
  for (const float p : {1e-6f, 0.5f, 0.97f}) add([&](SamplingOptions& o) { o.top_p = p; });
  add([](SamplingOptions& o) { o.min_p = 0.2f; });
  add([](SamplingOptions& o) { o.temperature = 2, o.top_k = 20, o.top_p = 0.9f, o.min_p = 0.05f; });
  add([](SamplingOptions& o) { o.temperature = 0, o.logit_bias = {{0, kExcludedLogit}}; });
  add([&](SamplingOptions& o) {
    o.temperature = 0.8f, o.repetition_penalty = 1.7f, o.frequency_penalty = 0.3f, o.presence_penalty = -0.4f;
    o.logit_bias = {{static_cast<int32_t>(vocab - 1), 1.5f}};
    if (vocab > 1) o.logit_bias.emplace_back(static_cast<int32_t>(vocab / 2), kExcludedLogit);
  });
  cases.back().prompt = {0, 3, 8, 3, 30};
  cases.back().output = {8, 5, 5, 999};
  return cases;
}

Sampler device_sampler(const DeviceSamplingCase& c, int64_t vocab) {
  Sampler sampler = make_sampler(c.options, static_cast<size_t>(vocab));
  const auto within = [&](std::vector<int32_t> tokens) {
    for (int32_t& token : tokens) token %= static_cast<int32_t>(vocab);
    return tokens;
  };
  sampler.accept_prompt(within(c.prompt));
  sampler.accept(within(c.output));
  return sampler;
}

Graph doubled_logits(int64_t vocab) {
  GraphBuilder g("test");
  g.output("logits", scale(g, g.input("x", DType::kF32, {Dim(Symbol::kLogitRows), Dim(vocab)}), {2.0f}),
           PortRole::kLogits);
  Graph graph = std::move(g.finish()).value();
  add_sample(graph);
  return graph;
}

enum class LogitKind : uint8_t { kNormal, kTies, kEqual };

/// A row of logits for each case, then one that the host samples and three that nobody can.
void check_device_sampling(int64_t vocab, bool persistent, LogitKind kind = LogitKind::kNormal) {
  std::vector<DeviceSamplingCase> cases = device_sampling_cases(vocab);
  std::vector<int64_t> positions = {0, 1, 77};
  if (kind == LogitKind::kEqual) {  // more than are listed: only what needs a list, which takes long here
    std::erase_if(cases, [](const DeviceSamplingCase& c) { return c.options.top_k != 5 && c.options.top_p == 1; });
    positions.resize(1);
  }
  const auto sampled_rows = std::ssize(cases), rows = sampled_rows + 4;
  const Graph graph = doubled_logits(vocab);
  TileCompiled c = TileCompiled::make(graph, sizes(rows, rows), {.persistent = persistent});
  ASSERT_TRUE(c.status.ok()) << c.status.to_string();
  auto reference = std::move(make_interpreter_runner(graph, sizes(rows, rows))).value();
  const Status ordered = check_program(*c.runner->program(), sizes(rows, rows));
  EXPECT_TRUE(ordered.ok()) << ordered.to_string();
  for (const int64_t position : positions) {
    std::vector<float> x =
        random_logits(static_cast<size_t>(rows * vocab), static_cast<uint32_t>(position + vocab), 1.5f);
    if (kind != LogitKind::kNormal)
      for (float& value : x) value = kind == LogitKind::kTies ? std::round(value) * 0.5f : -0.0f;
    // Below the smallest unit of a weight, and excluded.
    if (vocab > 2) x[static_cast<size_t>(vocab)] = -50, x[static_cast<size_t>(2 * vocab + 1)] = kExcludedLogit;
    const auto row_of = [&](int64_t row) { return x.begin() + row * vocab; };
    *row_of(sampled_rows + 1) = std::numeric_limits<float>::quiet_NaN();
    *(row_of(sampled_rows + 2) + vocab - 1) = std::numeric_limits<float>::infinity();
    std::fill(row_of(sampled_rows + 3), row_of(sampled_rows + 3) + vocab, kExcludedLogit);

    std::vector<SampleRow> samples;
    std::vector<int32_t> wanted;
    for (const DeviceSamplingCase& each : cases) {
      Sampler sampler = device_sampler(each, vocab);
      samples.push_back(sampler.device_row(position));
      EXPECT_NE(samples.back().kind, SampleRow::Kind::kHost);
      std::vector<float> logits(row_of(std::ssize(samples) - 1), row_of(std::ssize(samples)));
      for (float& value : logits) value *= 2;
      const Result<int32_t> token = sampler.sample(logits, position);
      wanted.push_back(token.ok() ? *token : -1);  // bias may leave no token of a small vocabulary
    }
    samples.resize(static_cast<size_t>(rows), samples[1]);
    samples[static_cast<size_t>(sampled_rows)] = {};
    wanted.resize(static_cast<size_t>(rows), -1);

    std::memcpy(c.runner->host_input("x"), x.data(), x.size() * sizeof(float));
    const auto* logits = static_cast<const float*>(c.runner->host_output("logits"));
    std::fill_n(const_cast<float*>(logits), rows * vocab, 1234.0f);
    StepContext step;
    step.sizes = sizes(rows, rows);
    step.samples = samples;
    const Status status = c.runner->step(step);
    ASSERT_TRUE(status.ok()) << status.to_string();
    const auto* sampled = static_cast<const int32_t*>(c.runner->host_output("sampled"));
    EXPECT_EQ(std::vector<int32_t>(sampled, sampled + rows), wanted) << "vocabulary " << vocab;
    // The reference rounds no weight, so that a random number close to the border of two tokens may give the other one.
    put(*reference, graph, "x", HostTensor{{rows, vocab}, {x.begin(), x.end()}});
    ASSERT_TRUE(reference->step(step).ok());
    const auto* by_reference = static_cast<const int32_t*>(reference->host_output("sampled"));
    for (int64_t row = 0; row < rows; ++row)
      EXPECT_EQ(by_reference[row], wanted[static_cast<size_t>(row)]) << "vocabulary " << vocab << ", row " << row;
    // Only logits that the host needs come back.
    for (int64_t row = 0; row < rows; ++row) {
      const float want = wanted[static_cast<size_t>(row)] < 0 ? *row_of(row) * 2 : 1234.0f;
      if (!std::isnan(want)) {
        EXPECT_EQ(logits[row * vocab], want) << row;
      }
    }
  }
  // Without samples all do.
  StepContext step;
  step.sizes = sizes(rows, rows);
  ASSERT_TRUE(c.runner->step(step).ok());
  EXPECT_EQ(static_cast<const int32_t*>(c.runner->host_output("sampled"))[0], -1);
  EXPECT_NE(static_cast<const float*>(c.runner->host_output("logits"))[0], 1234.0f);
}

TEST(DeviceSampling, GivesTheTokensOfTheSampler) {
  for (const int64_t vocab : {1, 31, 32, 33, 257}) check_device_sampling(vocab, vocab % 2 == 0);
  check_device_sampling(257, false, LogitKind::kTies);
  check_device_sampling(1021, true, LogitKind::kTies);
  check_device_sampling(5003, false);  // two tiles of edits
  check_device_sampling(8231, false, LogitKind::kEqual);
}

// The host samples with options that the device lacks.
TEST(DeviceSampling, LeavesTheRestToTheHost) {
  const auto kind = [](const std::function<void(SamplingOptions&)>& set) {
    SamplingOptions options;
    set(options);
    return make_sampler(options, 50).device_row(3).kind;
  };
  EXPECT_EQ(kind([](SamplingOptions&) {}), SampleRow::Kind::kDraw);
  EXPECT_EQ(kind([](SamplingOptions& o) { o.temperature = 0; }), SampleRow::Kind::kGreedy);
  EXPECT_EQ(kind([](SamplingOptions& o) { o.typical_p = 0.5f; }), SampleRow::Kind::kHost);
  EXPECT_EQ(kind([](SamplingOptions& o) { o.mirostat = 2; }), SampleRow::Kind::kHost);
  EXPECT_EQ(kind([](SamplingOptions& o) { o.dynatemp_range = 0.5f; }), SampleRow::Kind::kHost);
  EXPECT_EQ(kind([](SamplingOptions& o) { o.dry_multiplier = 1, o.dry_sequence_breakers = {}; }),
            SampleRow::Kind::kHost);
  EXPECT_EQ(kind([](SamplingOptions& o) {
              o.top_p = 0.5f, o.temperature = 0.7f;
              o.samplers = {"top_p", "temperature"};
            }),
            SampleRow::Kind::kHost);
  EXPECT_EQ(kind([](SamplingOptions& o) { o.logit_bias = {{4, 1.0f}, {4, 1.0f}}; }), SampleRow::Kind::kHost);
}

}  // namespace
}  // namespace redline::test
