#include "graph/ops/all_reduce.h"

#include <thread>

#include "graph/ops/scale.h"
#include "support/op_formula.h"
#include "support/tile_harness.h"

namespace redline::test {
namespace {

constexpr const char* kPartNames[] = {"p0", "p1", "p2"};

// Sums of a graph that computes the parts of all ranks: two roundings of about the largest value.
TEST(AllReduceOp, EqualsTheFormula) {
  for (const int64_t ranks : {2, 3})
    for (const int64_t cols : {1, 17, 64})
      expect_formula(
          [&](GraphBuilder& g, Numbers&) {
            std::vector<Value> parts;
            for (int64_t r = 0; r < ranks; ++r)
              parts.push_back(g.input(kPartNames[r], DType::kF32, {kBatch, Dim(cols)}));
            g.output("y", all_reduce(g, parts, {.ranks = ranks}));
          },
          [&](Numbers& n, const SymbolValues& s) {
            std::map<std::string, HostTensor> in;
            for (int64_t r = 0; r < ranks; ++r) in[kPartNames[r]] = matrix(n, s[Symbol::kBatch], cols);
            return in;
          },
          each([=](const FormulaInputs& in, int64_t r, int64_t c) {
            double sum = 0;
            for (int64_t p = 0; p < ranks; ++p) sum += in(kPartNames[p], r, c);
            return sum;
          }),
          {image_sizes(0, 0), image_sizes(1, 0), image_sizes(7, 0), image_sizes(16, 0), image_sizes(33, 0)}, 4e-7);
}

std::vector<float> part_of(int64_t rank, int64_t count) {
  Numbers numbers(static_cast<uint64_t>(rank) + 11);
  std::vector<float> values = numbers.vector(count);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::ldexp(values[i], static_cast<int>(i % 20));
  return values;
}

/// y = 3 (sum over the ranks of 2 p), whose memory a later value could take while other ranks still read it.
Graph rank_graph(const std::shared_ptr<RankGroup>& group, int64_t cols) {
  GraphBuilder g("rank");
  const Value p = g.input("p", DType::kF32, {Symbol::kTokens, Dim(cols)});
  Value y = scale(g, p, {2});
  for (const char* name : {"first", "second"}) {
    const Value part = scale(g, y, {0.5f});
    y = all_reduce(g, std::span(&part, 1), {.ranks = group->size(), .group = group, .exchange = name});
    y = scale(g, y, {3});
  }
  g.output("y", y);
  return std::move(g.finish()).value();
}

// Ranks on threads with different numbers of workers: the sums of all ranks have the bits of sums in the order of
// ranks.
TEST(AllReduceOp, RanksOnThreadsSumInTheirOrder) {
  constexpr int64_t kCols = 40, kMaxRows = 70;
  for (const int ranks : {2, 3}) {
    const auto groups = make_thread_ranks(ranks).value();
    std::vector<std::vector<std::vector<float>>> got(static_cast<size_t>(ranks));
    const std::vector<int64_t> row_counts = {1, 2, 33, 70, 1, 5};
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] {
        const CpuKernels& kernels = **cpu_kernels();
        WorkerTeam team(1 + r, std::pair{kernels.worker_begin, kernels.worker_end});
        CpuCompileOptions options;
        options.kernels = &kernels;
        options.bounds = sizes(kMaxRows);
        auto program = compile_cpu(rank_graph(groups[static_cast<size_t>(r)], kCols), options, team);
        ASSERT_TRUE(program.ok()) << program.status().to_string();
        Executor executor(std::move(program).value(), team, {});
        for (int again = 0; again < 5; ++again)
          for (const int64_t rows : row_counts) {
            const std::vector<float> part = part_of(r, rows * kCols);
            std::copy(part.begin(), part.end(), static_cast<float*>(executor.host_input("p")));
            StepContext step;
            step.sizes = sizes(rows);
            ASSERT_TRUE(executor.step(step).ok());
            const auto* y = static_cast<const float*>(executor.host_output("y"));
            got[static_cast<size_t>(r)].emplace_back(y, y + rows * kCols);
          }
      });
    for (std::thread& thread : threads) thread.join();
    for (size_t step = 0; step < got[0].size(); ++step) {
      const int64_t count = row_counts[step % row_counts.size()] * kCols;
      std::vector<float> want(static_cast<size_t>(count));
      for (size_t i = 0; i < want.size(); ++i) {
        float sum = part_of(0, count)[i];
        for (int r = 1; r < ranks; ++r) sum += part_of(r, count)[i];
        float again = 3 * sum * 0.5f;  // of every rank
        float all = again;
        for (int r = 1; r < ranks; ++r) all += again;
        want[i] = 3 * all;
      }
      for (int r = 0; r < ranks; ++r)
        ASSERT_EQ(got[static_cast<size_t>(r)][step], want) << "rank " << r << " step " << step;
    }
    EXPECT_TRUE(groups[0]->status().ok());
  }
}

TEST(AllReduceOp, TheInterpreterSumsOverRanksInFloat64) {
  const auto groups = make_thread_ranks(2).value();
  std::vector<double> got[2];
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      auto interpreter = Interpreter::make(rank_graph(groups[static_cast<size_t>(r)], 3));
      const HostTensor p = {{1, 3}, {r + 1.0, 1.0 / 3, 0.0}};
      auto outputs = interpreter->run({{"p", p}}, sizes(1));
      ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
      got[r] = (*outputs)["y"].data;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got[0], got[1]);
  EXPECT_EQ(got[0], (std::vector<double>{27, 9 * (1.0 / 3 + 1.0 / 3), 0}));
}

TEST(AllReduceOp, OneRankNeedsNoOp) {
  GraphBuilder g("test");
  const Value p = g.input("p", DType::kF32, {Symbol::kTokens, Dim(8)});
  EXPECT_EQ(all_reduce(g, std::span(&p, 1), {.ranks = 1}).id, p.id);
}

TEST(AllReduceOp, BytesFromOtherRanks) {
  const auto groups = make_thread_ranks(3).value();
  const Graph graph = rank_graph(groups[0], 10);
  int64_t bytes = 0;
  for (const Op& op : graph.ops)
    if (op.def == &kAllReduce) bytes += all_reduce_bytes(graph, op).eval(sizes(7));
  EXPECT_EQ(bytes, 2 * 2 * 7 * 10 * 4);
}

TEST(AllReduceOp, TileDevicesRefuseItByName) {
  const auto groups = make_thread_ranks(2).value();
  const Status status = TileCompiled::make(rank_graph(groups[0], 8), sizes(4)).status;
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_NE(status.message().find("the op all_reduce does not run on"), std::string::npos) << status.message();
}

TEST(AllReduceOp, WhatDoesNotFitIsRefused) {
  const auto message = [](auto&& build) {
    GraphBuilder g("test");
    const Value a = g.input("a", DType::kF32, {Symbol::kTokens, Dim(8)});
    const Value b = g.input("b", DType::kF32, {Symbol::kTokens, Dim(9)});
    build(g, a, b);
    return std::string(g.finish().status().message());
  };
  EXPECT_EQ(message([](GraphBuilder& g, Value a, Value b) {
              all_reduce(g, std::vector{a, b}, {.ranks = 2});
            }),
            "all_reduce: parts must be f32 [rows, cols] and alike; there are [tokens, 8] and [tokens, 9]");
  EXPECT_EQ(message([](GraphBuilder& g, Value a, Value) {
              all_reduce(g, std::vector{a, a}, {.ranks = 3});
            }),
            "all_reduce: 2 parts of 3 ranks; this graph computes 3");
  const auto group = make_thread_ranks(2).value()[1];
  EXPECT_EQ(message([&](GraphBuilder& g, Value a, Value) {
              all_reduce(g, std::vector{a}, {.ranks = 3, .group = group, .exchange = "x"});
            }),
            "all_reduce: a group of 2 ranks for parts of 3");
  EXPECT_EQ(
      message([&](GraphBuilder& g, Value a, Value) { all_reduce(g, std::vector{a}, {.ranks = 2, .group = group}); }),
      "all_reduce: the exchange has no name");
}

}  // namespace
}  // namespace redline::test
