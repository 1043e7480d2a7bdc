#include "graph/ops/add.h"
#include "graph/ops/linear.h"
#include "graph/ops/rms_norm.h"
#include "graph/pass.h"
#include "support/graph_harness.h"

namespace redline::test {
namespace {

Graph residual_block(Numbers& n) {
  GraphBuilder g("test");
  const Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(40)});
  const Value h = rms_norm(g, x, g.weight("norm", n.weight({40})), {});
  const Value y = add(g, x, linear(g, h, g.weight("w", n.weight({40, 40})), g.weight("b", n.weight({40}))));
  add(g, y, y);  // reaches no output
  g.output("y", add(g, linear(g, y, g.weight("v", n.weight({40, 40}))), y));
  return std::move(g.finish()).value();
}

}  // namespace

TEST(FuseResidual, TheFusedGraphEqualsTheComposedOne) {
  Numbers weights(3), fused_weights(3), in(4);
  Graph composed = residual_block(weights), fused = residual_block(fused_weights);
  ASSERT_TRUE(run_passes(fused).ok());
  EXPECT_EQ(count(composed, kAdd), 3);
  EXPECT_EQ(count(fused, kAdd), 0);
  EXPECT_EQ(count(fused, kLinear), 2);

  const std::map<std::string, HostTensor> inputs = {{"x", matrix(in, 9, 40)}};
  auto a = Interpreter::make(composed), b = Interpreter::make(fused);
  const HostTensor want = a->run(inputs, sizes(9)).value().at("y");
  const HostTensor same = b->run(inputs, sizes(9)).value().at("y");
  for (size_t i = 0; i < want.data.size(); ++i) EXPECT_DOUBLE_EQ(want.data[i], same.data[i]);

  // Compiled: the epilogue adds what a stage of its own would have added, in the same order, so the bits are the same.
  std::vector<float> results[2];
  for (int k = 0; k < 2; ++k) {
    Compiled c = Compiled::make(k ? fused : composed, 3, sizes(16));
    c.put("x", inputs.at("x"));
    StepContext step;
    step.sizes = sizes(9);
    ASSERT_TRUE(c.executor->step(step).ok());
    results[k] = c.get("y", 9 * 40);
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(FuseResidual, ALinearThatIsReadTwiceStays) {
  Numbers n;
  GraphBuilder g("test");
  const Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(8)});
  const Value y = linear(g, x, g.weight("w", n.weight({8, 8})));
  g.output("a", add(g, x, y));
  g.output("b", y);
  Graph graph = std::move(g.finish()).value();
  ASSERT_TRUE(run_passes(graph).ok());
  EXPECT_EQ(count(graph, kAdd), 1);
}

TEST(RemoveDead, KeepsWhatReachesAnOutput) {
  Numbers n;
  Graph graph = residual_block(n);
  const size_t before = graph.ops.size();
  ASSERT_TRUE(remove_dead(graph).ok());
  EXPECT_EQ(graph.ops.size(), before - 1);
  EXPECT_TRUE(graph.check().ok());
}

}  // namespace redline::test
