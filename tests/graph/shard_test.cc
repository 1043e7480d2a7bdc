// Division of small graphs: which parts of matrices a rank takes, what is summed, and matrices that are not divided.
#include "graph/shard.h"

#include <gmock/gmock.h>

#include "graph/ops/add.h"
#include "graph/ops/all_reduce.h"
#include "graph/ops/linear.h"
#include "graph/ops/silu_mul.h"
#include "support/graph_harness.h"
#include "support/random_weight.h"

namespace redline::test {
namespace {

using ::testing::HasSubstr;

/// x + down(silu(gate x) * up x), with biases.
Graph mlp(Numbers& n, int64_t hidden, int64_t inner) {
  GraphBuilder g("mlp");
  const Value x = g.input("x", DType::kF32, {Symbol::kTokens, Dim(hidden)});
  const auto project = [&](const char* name, Value from, int64_t out, int64_t in) {
    g.set_scope(name);
    return linear(g, from, g.weight(std::string(name) + ".weight", n.weight({out, in})),
                  g.weight(std::string(name) + ".bias", n.weight({out})));
  };
  const Value gate = project("gate", x, inner, hidden), up = project("up", x, inner, hidden);
  const Value down = project("down", silu_mul(g, gate, up), hidden, inner);
  g.set_scope("");
  g.output("y", add(g, x, down));
  return std::move(g.finish()).value();
}

const Op& find_op(const Graph& graph, std::string_view name) {
  for (const Op& op : graph.ops)
    if (op.name == name) return op;
  ADD_FAILURE() << "no op " << name << " in\n" << graph.to_string();
  return graph.ops[0];
}

TEST(Shard, ARankTakesRowsOfTheFirstProductsAndColumnsOfTheLast) {
  const auto groups = make_thread_ranks(2).value();
  for (int rank = 0; rank < 2; ++rank) {
    Numbers n;
    Graph graph = mlp(n, 8, 24);
    ASSERT_TRUE(shard(graph, {.ranks = 2, .rank = rank, .group = groups[static_cast<size_t>(rank)]}).ok());
    const Op &gate = find_op(graph, "gate.linear"), &down = find_op(graph, "down.linear");
    EXPECT_EQ(graph.value(gate.inputs[1]).shape, (Shape{Dim(12), Dim(8)}));
    EXPECT_EQ(graph.value(gate.inputs[1]).name, rank == 0 ? "gate.weight[0:12, 0:8]" : "gate.weight[12:24, 0:8]");
    EXPECT_EQ(graph.value(gate.inputs[2]).shape, (Shape{Dim(12)}));
    EXPECT_EQ(graph.value(gate.outputs[0]).shape, (Shape{Symbol::kTokens, Dim(12)}));
    EXPECT_EQ(graph.value(down.inputs[1]).shape, (Shape{Dim(8), Dim(12)}));
    EXPECT_EQ(graph.value(down.inputs[1]).name, rank == 0 ? "down.weight[0:8, 0:12]" : "down.weight[0:8, 12:24]");
    EXPECT_EQ(down.inputs.size(), rank == 0 ? 3u : 2u) << "rank 0 alone adds the bias";
    EXPECT_EQ(count(graph, kAllReduce), 1);
    for (const ValueInfo& value : graph.values) {
      if (value.kind != ValueKind::kWeight) continue;
      EXPECT_NE(value.name, "gate.weight") << "the whole matrix takes no memory";
    }
  }
}

TEST(Shard, AGraphOfAllRanksComputesTheSameMlp) {
  for (const int64_t ranks : {1, 2, 3, 4}) {
    Numbers n;
    Graph graph = mlp(n, 8, 24), parts = graph;
    ASSERT_TRUE(shard(parts, {.ranks = ranks}).ok());
    EXPECT_EQ(count(parts, kAllReduce), ranks > 1 ? 1 : 0);
    EXPECT_EQ(count(parts, kLinear), ranks > 1 ? 2 + static_cast<int>(ranks) : 3);
    const HostTensor x = matrix(n, 5, 8);
    const auto run = [&](Graph& which) {
      auto interpreter = Interpreter::make(which);
      return interpreter->run({{"x", x}}, sizes(5)).value().at("y").data;
    };
    const std::vector<double> want = run(graph), got = run(parts);
    ASSERT_EQ(got.size(), want.size());
    // Sums of 24 float64 numbers in another order.
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-13 * 24 * std::abs(want[i]) + 1e-12);
  }
}

TEST(Shard, SumsThatDoNotDependOnEachOtherAreOrdered) {
  const auto groups = make_thread_ranks(2).value();
  Numbers n;
  GraphBuilder g("parallel");
  const Value x = g.input("x", DType::kF32, {Symbol::kTokens, Dim(8)});
  Value y = x;
  for (const char* name : {"a", "b"}) {
    g.set_scope(name);
    const auto weight = [&](const char* part, int64_t out, int64_t in) {
      return g.weight(fmt::format("{}.{}", name, part), n.weight({out, in}));
    };
    const Value h = silu_mul(g, linear(g, x, weight("gate", 16, 8)), linear(g, x, weight("up", 16, 8)));
    y = add(g, y, linear(g, h, weight("down", 8, 16)));
  }
  g.output("y", y);
  Graph graph = std::move(g.finish()).value();
  ASSERT_TRUE(shard(graph, {.ranks = 2, .rank = 1, .group = groups[1]}).ok());
  std::vector<const Op*> sums;
  for (const Op& op : graph.ops)
    if (op.def == &kAllReduce) sums.push_back(&op);
  ASSERT_EQ(sums.size(), 2u);
  EXPECT_EQ(sums[0]->inputs.size(), 1u);
  ASSERT_EQ(sums[1]->inputs.size(), 2u);
  EXPECT_EQ(sums[1]->inputs[1], sums[0]->outputs[0]);
}

TEST(Shard, ColumnsThatCutThroughBlocksAreNamed) {
  const testing::RandomWeight gate(DType::kQ8_0, 96, 32, 1), down(DType::kQ8_0, 32, 96, 2);
  const auto build = [&] {
    GraphBuilder g("blocks");
    const Value x = g.input("x", DType::kF32, {Symbol::kTokens, Dim(32)});
    WeightSource first, last;
    first.view = gate.view();
    last.view = down.view();
    const Value h = linear(g, x, g.weight("gate.weight", first));
    g.set_scope("down");
    g.output("y", linear(g, silu_mul(g, h, linear(g, x, g.weight("up.weight", first))), g.weight("down.weight", last)));
    return std::move(g.finish()).value();
  };
  Graph graph = build();
  const Status status = shard(graph, {.ranks = 2});
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_THAT(status.message(),
              HasSubstr("tensor down.weight: columns [0, 48) cut through blocks of q8_0, which hold 32 elements"));
  graph = build();
  EXPECT_TRUE(shard(graph, {.ranks = 3}).ok()) << "whole blocks are divided";
  graph = build();
  EXPECT_THAT(shard(graph, {.ranks = 5}).message(), HasSubstr("96 columns do not divide over 5 ranks"));
}

}  // namespace
}  // namespace redline::test
