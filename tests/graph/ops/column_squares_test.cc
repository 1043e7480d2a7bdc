#include "graph/ops/column_squares.h"

#include "graph/ops/linear.h"
#include "support/op_formula.h"

namespace redline::test {

// A float32 sum of n squares: below (n + 1) roundings for n = 33.
constexpr double kColumnSquaresTolerance = 34 * 6e-8;

TEST(ColumnSquaresOp, EqualsTheFormula) {
  for (const int64_t cols : {1, 5, 96})
    expect_formula(
        [&](GraphBuilder& g, Numbers&) {
          g.output("y", column_squares(g, g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(cols)})));
        },
        [&](Numbers& n, int64_t rows) {
          return std::map<std::string, HostTensor>{{"x", matrix(n, rows, cols)}};
        },
        [=](const FormulaInputs& in, int64_t, int64_t) {
          std::vector<double> y(static_cast<size_t>(cols));
          for (int64_t r = 0; r < in[Symbol::kTokens]; ++r)
            for (int64_t c = 0; c < cols; ++c) y[static_cast<size_t>(c)] += in("x", r, c) * in("x", r, c);
          return y;
        },
        {1, 2, 7, 33}, kColumnSquaresTolerance);
}

TEST(ColumnSquaresOp, ProductsOfOneActivationShareTheirSums) {
  Numbers n;
  GraphBuilder g("test");
  const Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(8)});
  const Value a = linear(g, x, g.weight("a", n.weight({8, 8}))), b = linear(g, x, g.weight("b", n.weight({8, 8})));
  const Value c = linear(g, a, g.weight("c", n.weight({8, 8})));
  g.output("logits", linear(g, c, g.weight("last", n.weight({4, 8}))));
  g.output("b", b);
  Graph graph = g.finish().value();
  const std::vector<CollectedSquares> all = collect_column_squares(graph);
  ASSERT_TRUE(graph.check().ok());
  std::vector<std::vector<std::string>> names;
  for (const CollectedSquares& squares : all) {
    EXPECT_EQ(squares.num_experts, 0);
    names.emplace_back();
    for (const ValueId id : squares.matrices) names.back().push_back(graph.value(id).name);
  }
  EXPECT_EQ(names, (std::vector<std::vector<std::string>>{{"a", "b"}, {"c"}}));
  EXPECT_EQ(graph.value(graph.outputs[2]).name, "squares.0");
  EXPECT_EQ(graph.value(graph.outputs[3]).name, "squares.1");
}

}  // namespace redline::test
