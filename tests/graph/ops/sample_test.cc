#include "graph/ops/sample.h"

#include <limits>

#include "support/graph_harness.h"

namespace redline::test {
namespace {

constexpr double kExcluded = -std::numeric_limits<double>::infinity();

/// Probabilities of the tokens after the truncations of `row`: each token counts those that are likelier, or as likely
/// with a lower id.
std::vector<double> probabilities(const SampleRow& row, const std::vector<double>& logits) {
  const size_t n = logits.size();
  const auto is_before = [&](size_t a, size_t b) { return logits[a] > logits[b] || (logits[a] == logits[b] && a < b); };
  double largest = kExcluded;
  for (const double logit : logits) largest = std::max(largest, logit);
  std::vector<double> p(n);
  for (size_t i = 0; i < n; ++i) p[i] = std::exp(static_cast<double>(row.scale) * (logits[i] - largest));
  const auto keep = [&](const std::function<bool(size_t i, int64_t rank, double before)>& is_kept) {
    std::vector<double> kept(n);
    for (size_t i = 0; i < n; ++i) {
      int64_t rank = 0;
      double before = 0;
      for (size_t j = 0; j < n; ++j)
        if (is_before(j, i)) ++rank, before += p[j];
      if (is_kept(i, rank, before)) kept[i] = p[i];
    }
    p = kept;
  };
  const auto sum = [&] {
    double all = 0;
    for (const double x : p) all += x;
    return all;
  };
  if (row.top_k > 0) keep([&](size_t, int64_t rank, double) { return rank < row.top_k; });
  const double all = sum();
  if (row.top_p < 1)
    keep([&](size_t, int64_t rank, double before) {
      return rank == 0 || before < static_cast<double>(row.top_p) * all;
    });
  if (row.min_p > 0) keep([&](size_t i, int64_t, double) { return p[i] >= static_cast<double>(row.min_p); });
  const double rest = sum();
  for (double& x : p) x /= rest;
  return p;
}

/// Runs the reference of the op: `samples` for the rows of `logits` [rows, vocab].
std::vector<int64_t> sample_rows(const std::vector<double>& logits, int64_t vocab, std::span<const SampleRow> samples) {
  const int64_t rows = std::ssize(logits) / vocab;
  GraphBuilder g("test");
  g.output("logits", g.input("x", DType::kF32, {Dim(Symbol::kLogitRows), Dim(vocab)}), PortRole::kLogits);
  Graph graph = std::move(g.finish()).value();
  add_sample(graph);
  EXPECT_GE(graph.find_output(PortRole::kSampled), 0);
  auto interpreter = std::move(Interpreter::make(std::move(graph))).value();
  StepContext step;
  step.sizes = sizes(rows, rows);
  step.samples = samples;
  const auto outputs = interpreter.run({{"logits", HostTensor{{rows, vocab}, logits}}}, step);
  EXPECT_TRUE(outputs.ok()) << outputs.status().to_string();
  const HostTensor& sampled = outputs->at("sampled");
  EXPECT_EQ(sampled.shape, (std::vector<int64_t>{rows, 1}));
  return {sampled.data.begin(), sampled.data.end()};
}

SampleRow row_of(SampleRow::Kind kind) {
  SampleRow row;
  row.kind = kind;
  return row;
}

// With u in equal steps, the number of times that a token is drawn is its probability times the number of draws, to one
// draw.
TEST(SampleOp, DrawsWithTheProbabilitiesOfTheFormula) {
  for (const int64_t vocab : {1, 2, 7, 16, 17, 61}) {
    Numbers n(static_cast<uint64_t>(vocab));
    std::vector<double> logits(static_cast<size_t>(vocab));
    for (double& logit : logits) logit = 0.25 * static_cast<double>(n.below(16));  // with ties
    if (vocab > 2) logits[2] = kExcluded;
    std::vector<SampleRow> cases(8, row_of(SampleRow::Kind::kDraw));
    cases[1].scale = 2.5f;
    cases[2].top_k = 3;
    cases[3].top_p = 0.6f;
    cases[4].min_p = 0.3f;
    cases[5].top_k = 40, cases[5].top_p = 0.9f, cases[5].min_p = 0.05f, cases[5].scale = 0.7f;
    cases[6].top_p = 1e-9f;
    cases[7].top_k = int64_t{1} << 40;
    for (const SampleRow& given : cases) {
      constexpr int64_t kDraws = 500;
      std::vector<SampleRow> samples(kDraws, given);
      for (size_t i = 0; i < kDraws; ++i) samples[i].u = (static_cast<double>(i) + 0.5) / kDraws;
      std::vector<double> rows;
      for (int64_t i = 0; i < kDraws; ++i) rows.insert(rows.end(), logits.begin(), logits.end());
      std::vector<int64_t> count(static_cast<size_t>(vocab));
      for (const int64_t token : sample_rows(rows, vocab, samples)) ++count.at(static_cast<size_t>(token));
      const std::vector<double> p = probabilities(given, logits);
      for (size_t token = 0; token < p.size(); ++token)
        EXPECT_NEAR(static_cast<double>(count[token]), p[token] * kDraws, 1 + 1e-9) << vocab << ", token " << token;
    }
  }
}

TEST(SampleOp, GreedyTakesTheLowestIdAmongTheBest) {
  const SampleRow greedy = row_of(SampleRow::Kind::kGreedy);
  EXPECT_EQ(sample_rows({1, 3, 3, 2}, 4, std::vector{greedy}), (std::vector<int64_t>{1}));
  SampleRow edited = greedy;  // 3 / 2 - 0.25, 3 - 4, 2 + 0.5
  edited.edits = {{1, 0, 2, 0.25f}, {2, -4, 0, 0}, {3, 0.5f, 0, 0}};
  EXPECT_EQ(sample_rows({1, 3, 3, 2}, 4, std::vector{edited}), (std::vector<int64_t>{3}));
  SampleRow negative = greedy;  // -1 * 3 - 0.5
  negative.edits = {{0, 0, 3, 0.5f}};
  EXPECT_EQ(sample_rows({-1, -3.4, -3.6}, 3, std::vector{negative}), (std::vector<int64_t>{1}));
  // A penalty excludes no token, and an excluded token stays excluded.
  SampleRow extreme = greedy;
  extreme.edits = {{0, 0, 1, 3e38f}, {1, -std::numeric_limits<float>::infinity(), 1, -3e38f}};
  EXPECT_EQ(sample_rows({-3e38, 5}, 2, std::vector{extreme}), (std::vector<int64_t>{0}));
}

TEST(SampleOp, GivesNoTokenWhereTheHostSamples) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const SampleRow draw = row_of(SampleRow::Kind::kDraw), greedy = row_of(SampleRow::Kind::kGreedy);
  const std::vector<SampleRow> samples = {row_of(SampleRow::Kind::kHost), draw, greedy, draw, greedy};
  EXPECT_EQ(sample_rows({1, 2, nan, 2, 1, inf, kExcluded, kExcluded, 1, 2}, 2, samples),
            (std::vector<int64_t>{-1, -1, -1, -1, 1}));
  EXPECT_EQ(sample_rows({1, 2, 3, 4}, 2, {}), (std::vector<int64_t>{-1, -1}));
}

TEST(SampleOp, RefusesOtherLogits) {
  const auto status = [](DType type, Shape shape) {
    GraphBuilder g("test");
    g.output("tokens", sample(g, g.input("x", type, std::move(shape))));
    return g.finish().status();
  };
  const Dim rows(Symbol::kLogitRows);
  EXPECT_TRUE(status(DType::kF32, {rows, Dim(9)}).ok());
  EXPECT_EQ(status(DType::kI32, {rows, Dim(9)}).code(), Code::invalid_argument);
  EXPECT_EQ(status(DType::kF32, {rows}).code(), Code::invalid_argument);
  EXPECT_EQ(status(DType::kF32, {rows, rows}).message(),
            "sample: logits are [logit_rows, logit_rows], expected f32 [rows, vocab_size]");
  // A network of hidden states has nothing to sample from.
  GraphBuilder g("test");
  g.output("hidden", g.input("x", DType::kF32, {rows, Dim(9)}), PortRole::kHidden);
  Graph graph = std::move(g.finish()).value();
  add_sample(graph);
  EXPECT_EQ(graph.outputs.size(), 1u);
}

}  // namespace
}  // namespace redline::test
