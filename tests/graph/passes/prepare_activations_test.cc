#include "graph/ops/activation.h"
#include "graph/ops/layer_norm.h"
#include "support/graph_harness.h"

namespace redline::test {

// Ops that can store their output in other forms, read by ops that are not products and have no second input.
TEST(PrepareActivations, LeavesWhatNoProductReadsAsItIs) {
  expect_like_reference(
      [](GraphBuilder& g, Numbers& n) {
        Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(64)});
        x = layer_norm(g, x, g.weight("w", n.weight({64})), {}, {});
        g.output("y", activation(g, activation(g, x, Activation::kSilu), Activation::kRelu));
      },
      [](Numbers& n, int64_t rows) {
        return std::map<std::string, HostTensor>{{"x", matrix(n, rows, 64)}};
      },
      {1, 7}, 1e-5);
}

}  // namespace redline::test
