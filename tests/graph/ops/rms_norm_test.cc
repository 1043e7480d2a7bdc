#include "graph/ops/rms_norm.h"

#include "support/op_formula.h"

namespace redline::test {

// Sum of n squares, a square root, a division and two products: below (n + 4) float32 roundings for n = 96.
constexpr double kRmsNormTolerance = 100 * 6e-8;

// y[r, c] = x[r, c] w[c mod n] / sqrt(mean of x^2 over the n columns of its group + eps)
Formula rms_norm_formula(int64_t n, float eps) {
  return each([=](const FormulaInputs& in, int64_t r, int64_t c) {
    double squares = 0;
    for (int64_t i = c / n * n; i < c / n * n + n; ++i) squares += in("x", r, i) * in("x", r, i);
    return in("x", r, c) * in("w", c % n) / std::sqrt(squares / static_cast<double>(n) + double{eps});
  });
}

TEST(RmsNormOp, WholeRowsAndGroupsEqualTheFormula) {
  for (int64_t groups : {1, 3}) {
    const int64_t cols = 32;
    expect_formula(
        [&](GraphBuilder& g, Numbers& n) {
          const Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(cols * groups)});
          g.output("y", rms_norm(g, x, g.weight("w", n.weight({cols})), {1e-5f}));
        },
        [&](Numbers& n, int64_t rows) {
          return std::map<std::string, HostTensor>{{"x", matrix(n, rows, cols * groups)}};
        },
        rms_norm_formula(cols, 1e-5f), {0, 1, 2, 7, 33}, kRmsNormTolerance);
  }
}

TEST(RmsNormOp, AWeightThatDoesNotFitIsRefused) {
  Numbers n;
  GraphBuilder g("test");
  const Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(96)});
  EXPECT_FALSE(rms_norm(g, x, g.weight("norm.weight", n.weight({36})), {}).valid());
  const auto graph = g.finish();
  EXPECT_EQ(graph.status().code(), Code::invalid_argument);
  EXPECT_EQ(graph.status().message(), "rms_norm: norm.weight has 36 elements, the last axis of x has 96");
}

}  // namespace redline::test
