#include "graph/ops/group_norm.h"

#include "support/op_formula.h"
#include "support/prepared.h"

namespace redline::test {
namespace {

SymbolValues group_norm_picture(int64_t batch, int64_t height, int64_t width) {
  SymbolValues s;
  s[Symbol::kBatch] = batch;
  s[testing::kHeight] = height;
  s[testing::kWidth] = width;
  return s;
}
// One part, two, the most; items that end inside of tiles.
const std::vector<SymbolValues> kGroupNormSteps = {group_norm_picture(1, 2, 4),   group_norm_picture(3, 1, 7),
                                                   group_norm_picture(2, 9, 15),  group_norm_picture(5, 3, 5),
                                                   group_norm_picture(2, 67, 64), group_norm_picture(0, 3, 3)};

Value build_group_norm(GraphBuilder& g, Numbers& n, int64_t channels, GroupNormAttrs attrs) {
  const Value x = g.input("x", DType::kF32, {kBatch * kH * kW, channels});
  return group_norm(g, {x, kH, kW}, kBatch, g.weight("w", n.weight({channels})), g.weight("b", n.weight({channels})),
                    attrs);
}
MakeInputs group_norm_inputs(int64_t channels, double mean) {
  return [=](Numbers& n, const SymbolValues& now) {
    std::map<std::string, HostTensor> in = {{"x", matrix(n, (kBatch * kH * kW).eval(now), channels)}};
    // In float32, as the program will read them.
    for (double& v : in["x"].data) v = static_cast<double>(static_cast<float>(v + mean));
    return in;
  };
}

// x less the mean of its item and group, over the root of their variance, times w plus b; then silu.
Formula group_norm_formula(GroupNormAttrs attrs) {
  return [attrs](const FormulaInputs& in, int64_t rows, int64_t cols) {
    const int64_t pixels = in[testing::kHeight] * in[testing::kWidth], width = cols / attrs.groups;
    const auto count = static_cast<double>(pixels * width);
    const HostTensor& x = in.tensors.at("x");
    std::vector<double> y(static_cast<size_t>(rows * cols));
    for (int64_t first = 0; first < rows; first += pixels)
      for (int64_t group = 0; group < cols; group += width) {
        const auto sum = [&](const std::function<double(double)>& term) {
          double total = 0;
          for (int64_t r = first; r < first + pixels; ++r)
            for (int64_t c = group; c < group + width; ++c) total += term(x.row(r)[c]);
          return total;
        };
        const double mean = sum([](double v) { return v; }) / count;
        const double variance = sum([=](double v) { return (v - mean) * (v - mean); }) / count;
        for (int64_t r = first; r < first + pixels; ++r)
          for (int64_t c = group; c < group + width; ++c) {
            const double norm =
                (x.row(r)[c] - mean) / std::sqrt(variance + double{attrs.eps}) * in("w", c) + in("b", c);
            y[static_cast<size_t>(r * cols + c)] = attrs.silu ? norm / (1 + std::exp(-norm)) : norm;
          }
      }
    return y;
  };
}

}  // namespace

TEST(GroupNormOp, EqualsTheFormula) {
  // The norm is a difference of values that are `mean` large, rounded; statistics are exact beside that.
  int number = 0;  // each of two means with and without silu, spread over the sizes
  for (int64_t channels : {4, 32, 96})
    for (int64_t groups : {1, 2, 4}) {
      const bool silu = number % 2 != 0;
      const double mean = number++ / 2 % 2 != 0 ? 20.0 : 0.0;
      expect_formula(
          [&](GraphBuilder& g, Numbers& n) {
            g.output("y", build_group_norm(g, n, channels, {groups, 1e-5f, silu}));
          },
          group_norm_inputs(channels, mean), group_norm_formula({groups, 1e-5f, silu}), kGroupNormSteps,
          6e-8 * (20 + 8 * mean));
    }
}

TEST(GroupNormOp, OfOnePixelIsItsBias) {
  // Without deviations the root of eps is all that a rounded mean is divided by: of 20, and 300 times as much.
  for (float eps : {1.0f, 1e-5f})
    expect_formula(
        [&](GraphBuilder& g, Numbers& n) {
          g.output("y", build_group_norm(g, n, 4, {4, eps, false}));
        },
        group_norm_inputs(4, 20), group_norm_formula({4, eps, false}),
        {group_norm_picture(1, 1, 1), group_norm_picture(2, 1, 1)},
        6e-8 * 4 * 20 / static_cast<double>(std::sqrt(eps)));
}

TEST(GroupNormOp, StoresWhatProductsRead) {
  expect_prepares(
      [](GraphBuilder& g, Numbers& n) {
        return build_group_norm(g, n, 96, {32, 1e-6f, true});
      },
      group_norm_inputs(96, 1), kGroupNormSteps);
}

TEST(GroupNormOp, NamesWhatDoesNotFit) {
  auto message = [](int64_t channels, GroupNormAttrs attrs, int64_t weight) {
    Numbers n;
    GraphBuilder g("test");
    const Value x = g.input("x", DType::kF32, {kBatch * kH * kW, channels});
    group_norm(g, {x, kH, kW}, kBatch, g.weight("w", n.weight({weight})), g.weight("b", n.weight({channels})), attrs);
    auto graph = g.finish();
    EXPECT_FALSE(graph.ok());
    return graph.ok() ? "" : graph.status().message();
  };
  EXPECT_NE(message(30, {32, 1e-6f, false}, 30).find("30 channels in 32 groups"), std::string::npos);
  EXPECT_NE(message(32, {0, 1e-6f, false}, 32).find("in 0 groups"), std::string::npos);
  EXPECT_NE(message(32, {32, 1e-6f, false}, 31).find("w is"), std::string::npos);
}

}  // namespace redline::test
