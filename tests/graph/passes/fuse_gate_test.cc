#include "graph/ops/add.h"
#include "graph/ops/gated_add.h"
#include "graph/ops/linear.h"
#include "graph/pass.h"
#include "support/graph_harness.h"
#include "support/random_weight.h"

namespace redline::test {
namespace {

/// Two gated residuals in a row; the second has no bias.
Graph gated_block(Numbers& n, const testing::RandomWeight& w, const testing::RandomWeight& v) {
  GraphBuilder g("test");
  auto weight = [&](const char* name, const testing::RandomWeight& r) {
    return g.weight(name, {.view = r.view(), .source_row = {}, .file = {}});
  };
  const Value x = g.input("x", DType::kF32, {kBatch * kImage, Dim(w.k)});
  const Value table = g.input("table", DType::kF32, {kBatch, Dim(3 * w.k)});
  const Value y = gated_add(g, x, linear(g, x, weight("w", w), g.weight("b", n.weight({w.n}))), table, w.k, kImage);
  g.output("y", gated_add(g, y, linear(g, y, weight("v", v)), table, 2 * w.k, kImage));
  return std::move(g.finish()).value();
}

}  // namespace

TEST(FuseGate, TheFusedGraphEqualsTheComposedOne) {
  for (const DType type : testing::each_kind_of_weight())
    for (bool exact : {true, false}) {
      SCOPED_TRACE(std::string(dtype_info(type).name) + (exact ? " exact" : ""));
      constexpr int64_t kCols = 96;
      const testing::RandomWeight w(type, kCols, kCols, 1), v(type, kCols, kCols, 2);
      Numbers numbers(3);
      const Graph composed = gated_block(numbers, w, v);
      Graph fused = composed;
      ASSERT_TRUE(run_passes(fused).ok());
      EXPECT_EQ(count(fused, kGatedAdd), 0);
      EXPECT_EQ(count(fused, kLinear), 2);
      // Items that end at panels of 16 rows, within them, several in one panel; one item; none.
      const std::vector<SymbolValues> steps = {image_sizes(1, 1),  image_sizes(1, 40), image_sizes(2, 16),
                                               image_sizes(3, 19), image_sizes(4, 5),  image_sizes(33, 1),
                                               image_sizes(2, 61), image_sizes(0, 7),  image_sizes(3, 0)};
      for (const SymbolValues& now : steps) {
        const int64_t batch = now[Symbol::kBatch], rows = batch * now[Symbol::kImageTokens];
        Numbers in(4);
        const std::map<std::string, HostTensor> inputs = {{"x", matrix(in, rows, kCols)},
                                                          {"table", matrix(in, batch, 3 * kCols)}};
        const HostTensor want = Interpreter::make(composed)->run(inputs, now).value().at("y");
        const HostTensor same = Interpreter::make(fused)->run(inputs, now).value().at("y");
        EXPECT_EQ(want.data, same.data);
        // Compiled: the epilogue rounds where the stage of its own would have rounded, so the bits are the same.
        std::vector<float> first;
        for (int workers : {1, 3})
          for (bool fuse : {false, true}) {
            CpuCompileOptions options;
            options.exact_f32 = exact;
            Compiled c = Compiled::make(fuse ? fused : composed, workers, bounds_of(steps), options);
            for (const auto& [name, tensor] : inputs) c.put(name.c_str(), tensor);
            StepContext step;
            step.sizes = now;
            ASSERT_TRUE(c.executor->step(step).ok());
            const std::vector<float> got = c.get("y", rows * kCols);
            if (first.empty()) first = got;
            EXPECT_EQ(first, got) << batch << " items of " << now[Symbol::kImageTokens] << " rows, " << workers
                                  << " workers" << (fuse ? ", fused" : "");
          }
      }
    }
}

TEST(FuseGate, WhatMustStayStays) {
  Numbers n;
  GraphBuilder g("test");
  const Value x = g.input("x", DType::kF32, {kBatch * kImage, Dim(8)});
  const Value table = g.input("table", DType::kF32, {kBatch, Dim(8)});
  const Value twice = linear(g, x, g.weight("w", n.weight({8, 8})));
  g.output("a", gated_add(g, x, twice, table, 0, kImage));
  g.output("b", add(g, twice, x));
  const Value itself = linear(g, x, g.weight("v", n.weight({8, 8})));
  g.output("c", gated_add(g, itself, itself, table, 0, kImage));
  const Value has_residual = add(g, linear(g, x, g.weight("u", n.weight({8, 8}))), x);
  g.output("d", gated_add(g, x, has_residual, table, 0, kImage));
  Graph graph = std::move(g.finish()).value();
  ASSERT_TRUE(run_passes(graph).ok());
  EXPECT_EQ(count(graph, kGatedAdd), 3);
}

}  // namespace redline::test
