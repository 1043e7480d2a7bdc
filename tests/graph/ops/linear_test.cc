#include "graph/ops/linear.h"

#include "support/op_formula.h"

namespace redline::test {

TEST(LinearOp, EqualsTheFormulaWithAndWithoutBias) {
  for (auto [out, in] : {std::pair<int64_t, int64_t>{1, 1}, {17, 36}, {130, 64}})
    for (bool bias : {false, true})
      expect_formula(
          [&, out = out, in = in](GraphBuilder& g, Numbers& n) {
            const Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(in)});
            const Value w = g.weight("w", n.weight({out, in}));
            g.output("y", linear(g, x, w, bias ? g.weight("b", n.weight({out})) : Value{}));
          },
          [in = in](Numbers& n, int64_t rows) {
            return std::map<std::string, HostTensor>{{"x", matrix(n, rows, in)}};
          },
          each([=, in = in](const FormulaInputs& t, int64_t r, int64_t c) {
            double sum = bias ? t("b", c) : 0;
            for (int64_t k = 0; k < in; ++k) sum += t("x", r, k) * t("w", c, k);
            return sum;
          }),
          {0, 1, 2, 13, 33},
          // K products and sums of about unit size against a largest result of a few sqrt(K).
          static_cast<double>(in + 4) * 6e-8);
}

TEST(LinearOp, ShapesThatDisagreeAreRefused) {
  Numbers n;
  GraphBuilder g("test");
  const Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(8)});
  linear(g, x, g.weight("w", n.weight({4, 9})));
  EXPECT_EQ(g.finish().status().message(), "linear: w is [4, 9], x is [tokens, 8]: the last axes must agree");
}

}  // namespace redline::test
