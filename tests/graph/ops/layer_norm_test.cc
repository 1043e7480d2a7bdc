#include "graph/ops/layer_norm.h"

#include "support/op_formula.h"
#include "support/prepared.h"

namespace redline::test {
namespace {

const Dim kItemRows = Dim(Symbol::kImageTokens) + Dim(Symbol::kTextTokens);
// Items that end inside of tiles, and inside of the 16 rows that are stored at a time.
const std::vector<SymbolValues> kLayerNormSteps = {image_sizes(1, 0),     image_sizes(1, 1),      image_sizes(3, 1, 1),
                                                   image_sizes(2, 7, 4),  image_sizes(3, 19, 0),  image_sizes(5, 1, 0),
                                                   image_sizes(1, 64, 3), image_sizes(2, 37, 11), image_sizes(0, 5, 5)};

Value input_x(GraphBuilder& g, int64_t cols) {
  return g.input("x", DType::kF32, {Dim(Symbol::kBatch) * kItemRows, Dim(cols)});
}
Value modulated(GraphBuilder& g, int64_t cols, int64_t shift, int64_t scale, LayerNormAttrs attrs) {
  const Value table = g.input("table", DType::kF32, {Dim(Symbol::kBatch), Dim(3 * cols)});
  return modulated_norm(g, input_x(g, cols), {table, shift, scale, kItemRows}, attrs);
}
MakeInputs layer_norm_inputs(int64_t cols, bool has_table) {
  return [=](Numbers& n, const SymbolValues& now) {
    std::map<std::string, HostTensor> in = {{"x", matrix(n, (Dim(Symbol::kBatch) * kItemRows).eval(now), cols)}};
    if (has_table) in["table"] = matrix(n, now[Symbol::kBatch], 3 * cols);
    return in;
  };
}

// Row r of x less its mean, over the root of its variance; not centred, over the root of its mean square.
double normalized(const FormulaInputs& in, int64_t r, int64_t c, int64_t cols, const LayerNormAttrs& attrs) {
  const auto n = static_cast<double>(cols);
  double mean = 0, squares = 0;
  for (int64_t i = 0; attrs.centred && i < cols; ++i) mean += in("x", r, i) / n;
  for (int64_t i = 0; i < cols; ++i) squares += std::pow(in("x", r, i) - mean, 2) / n;
  return (in("x", r, c) - mean) / std::sqrt(squares + double{attrs.eps});
}

// Sums of n values and n squares, then a handful of roundings of results near the largest: below (2 n + 16) of them.
double layer_norm_tolerance(int64_t cols) { return (2.0 * static_cast<double>(cols) + 16) * 6e-8; }

}  // namespace

TEST(LayerNormOp, EqualsTheFormula) {
  for (int64_t cols : {2, 19, 96})
    for (bool centred : {true, false})
      for (int has : {0, 1, 2, 3})
        expect_formula(
            [&](GraphBuilder& g, Numbers& n) {
              const Value weight = has & 1 ? g.weight("w", n.weight({cols})) : Value{};
              const Value bias = has & 2 ? g.weight("b", n.weight({cols})) : Value{};
              g.output("y", layer_norm(g, input_x(g, cols), weight, bias, {1e-5f, centred}));
            },
            layer_norm_inputs(cols, false), each([=](const FormulaInputs& in, int64_t r, int64_t c) {
              const double y = normalized(in, r, c, cols, {1e-5f, centred}) * (has & 1 ? in("w", c) : 1);
              return y + (has & 2 ? in("b", c) : 0);
            }),
            {image_sizes(1, 0), image_sizes(1, 1), image_sizes(2, 17)}, layer_norm_tolerance(cols));
}

// Heads of queries: each has its own part of weight and bias.
TEST(LayerNormOp, GroupsAreNormalizedOneByOne) {
  for (int64_t group : {2, 7, 16})
    for (int64_t groups : {1, 3}) {
      const int64_t cols = group * groups;
      expect_formula(
          [&](GraphBuilder& g, Numbers& n) {
            const Value weight = g.weight("w", n.weight({cols})), bias = g.weight("b", n.weight({cols}));
            g.output("y", layer_norm(g, input_x(g, cols), weight, bias, {.eps = 1e-5f, .group = group}));
          },
          layer_norm_inputs(cols, false), each([=](const FormulaInputs& in, int64_t r, int64_t c) {
            const int64_t begin = c / group * group;
            double mean = 0, squares = 0;
            for (int64_t i = begin; i < begin + group; ++i) mean += in("x", r, i) / static_cast<double>(group);
            for (int64_t i = begin; i < begin + group; ++i)
              squares += std::pow(in("x", r, i) - mean, 2) / static_cast<double>(group);
            return (in("x", r, c) - mean) / std::sqrt(squares + double{1e-5f}) * in("w", c) + in("b", c);
          }),
          {image_sizes(1, 0), image_sizes(1, 1), image_sizes(2, 17)}, layer_norm_tolerance(cols));
    }
}

TEST(ModulatedNormOp, EqualsTheFormulaWhereverItemsEnd) {
  for (int64_t cols : {5, 64})
    for (int64_t shift : {-1, 0, 2})
      expect_formula(
          [&](GraphBuilder& g, Numbers&) {
            g.output("y", modulated(g, cols, shift < 0 ? -1 : shift * cols, cols, {1e-6f, shift != 2}));
          },
          layer_norm_inputs(cols, true), each([=](const FormulaInputs& in, int64_t r, int64_t c) {
            const int64_t item = r / kItemRows.eval(in.sizes);
            const double y = normalized(in, r, c, cols, {1e-6f, shift != 2}) * (1 + in("table", item, cols + c));
            return y + (shift < 0 ? 0 : in("table", item, shift * cols + c));
          }),
          kLayerNormSteps, layer_norm_tolerance(cols));
}

TEST(LayerNormOp, StoresWhatProductsRead) {
  expect_prepares(
      [](GraphBuilder& g, Numbers& n) {
        return layer_norm(g, input_x(g, 96), g.weight("nw", n.weight({96})), g.weight("nb", n.weight({96})));
      },
      layer_norm_inputs(96, false), kLayerNormSteps);
}

TEST(ModulatedNormOp, StoresWhatProductsRead) {
  expect_prepares([](GraphBuilder& g, Numbers&) { return modulated(g, 64, 0, 128, {}); }, layer_norm_inputs(64, true),
                  kLayerNormSteps);
}

TEST(LayerNormOp, WhatDoesNotFitIsRefused) {
  auto message = [](const std::function<void(GraphBuilder&, Numbers&, Value)>& build) {
    Numbers n;
    GraphBuilder g("test");
    build(g, n, input_x(g, 8));
    auto graph = g.finish();
    EXPECT_EQ(graph.status().code(), Code::invalid_argument);
    return graph.status().message();
  };
  EXPECT_EQ(message([](auto& g, auto& n, Value x) { layer_norm(g, x, g.weight("w", n.weight({9})), {}); }),
            "layer_norm: w is [9], expected [8]");
  EXPECT_EQ(message([](auto& g, auto&, Value x) { layer_norm(g, x, {}, {}, {.group = 3}); }),
            "layer_norm: groups of 3 in rows of 8");
  EXPECT_EQ(message([](auto& g, auto&, Value x) {
              const Value table = g.input("t", DType::kF32, {Dim(Symbol::kBatch), Dim(20)});
              modulated_norm(g, x, {table, 0, 13, kItemRows});
            }),
            "modulated_norm: 8 columns from 13 (scale) and 0 (shift) of a table of 20");
  EXPECT_EQ(
      message([](auto& g, auto&, Value x) {
        const Value table = g.input("t", DType::kF32, {Dim(Symbol::kBatch), Dim(16)});
        modulated_norm(g, x, {table, 0, 8, Dim(Symbol::kTextTokens)});
      }),
      "modulated_norm: x has batch*text_tokens + batch*image_tokens rows, the table batch of text_tokens rows each");
}

}  // namespace redline::test
