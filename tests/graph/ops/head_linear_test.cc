#include "graph/ops/head_linear.h"

#include "graph/ops/linear.h"
#include "support/isa_test.h"
#include "support/op_formula.h"
#include "support/random_weight.h"

namespace redline::test {
namespace {

std::vector<Value> heads_of(GraphBuilder& g, Numbers& n, int64_t heads, int64_t out, int64_t in) {
  std::vector<Value> all;
  for (int64_t h = 0; h < heads; ++h) all.push_back(g.weight(fmt::format("w{}", h), n.weight({out, in})));
  return all;
}

struct Sizes {
  int64_t heads, in, x_size, out;  // x_size: elements of a head in x
};

TEST(HeadLinear, EqualsTheFormula) {
  for (const Sizes& s : {Sizes{1, 1, 1, 1}, {3, 15, 17, 16}, {5, 16, 16, 15}, {2, 37, 40, 33}, {16, 8, 9, 17}})
    expect_formula(
        [&](GraphBuilder& g, Numbers& n) {
          const Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(s.heads * s.x_size)});
          g.output("y", head_linear(g, x, heads_of(g, n, s.heads, s.out, s.in)));
        },
        [&](Numbers& n, int64_t rows) {
          return std::map<std::string, HostTensor>{{"x", matrix(n, rows, s.heads * s.x_size)}};
        },
        each([&](const FormulaInputs& in, int64_t r, int64_t c) {
          const int64_t head = c / s.out;
          double sum = 0;
          for (int64_t k = 0; k < s.in; ++k)
            sum += in(fmt::format("w{}", head), c % s.out, k) * in("x", r, head * s.x_size + k);
          return sum;
        }),
        {0, 1, 2, 13, 33, 300},
        // in_features products and sums of about unit size.
        static_cast<double>(s.in + 4) * 6e-8);
}

TEST(HeadLinear, ConcatHeadsEqualsTheFormula) {
  for (const auto& [heads, a, b] : {std::array<int64_t, 3>{1, 1, 1}, {3, 16, 5}, {5, 7, 17}})
    expect_formula(
        [heads = heads, a = a, b = b](GraphBuilder& g, Numbers&) {
          const Dim T = Symbol::kTokens;
          g.output("y", concat_heads(g, g.input("a", DType::kF32, {T, Dim(heads * a)}),
                                     g.input("b", DType::kF32, {T, Dim(heads * b)}), heads));
        },
        [heads = heads, a = a, b = b](Numbers& n, int64_t rows) {
          return std::map<std::string, HostTensor>{{"a", matrix(n, rows, heads * a)},
                                                   {"b", matrix(n, rows, heads * b)}};
        },
        each([a = a, b = b](const FormulaInputs& in, int64_t r, int64_t c) {
          const int64_t head = c / (a + b), i = c % (a + b);
          return i < a ? in("a", r, head * a + i) : in("b", r, head * b + i - a);
        }),
        {0, 1, 2, 13}, 0);
}

using HeadLinearPerIsa = IsaTest;

// One head is the plain product: the same kernels, so the same bits, for every type of weight.
TEST_P(HeadLinearPerIsa, OneHeadHasTheBitsOfThePlainProduct) {
  for (const DType type : testing::weight_types())
    for (const int64_t tokens : {1, 7, 33, 300}) {
      const int64_t in = dtype_info(type).is_block ? std::max<int64_t>(dtype_info(type).block_elements, 64) : 36;
      const testing::RandomWeight weight(type, 40, in, 3);
      Numbers n(5);
      const HostTensor x = matrix(n, tokens, in);
      std::vector<float> both[2];
      for (const bool by_head : {false, true}) {
        GraphBuilder g("test");
        const Value input = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(in)});
        const Value w = g.weight("w", {weight.view(), {}, {}});
        g.output("y", by_head ? head_linear(g, input, {&w, 1}) : linear(g, input, w));
        auto graph = g.finish();
        ASSERT_TRUE(graph.ok()) << graph.status().to_string();
        CpuCompileOptions options;
        options.kernels = &kernels();
        Compiled c = Compiled::make(std::move(graph).value(), 2, sizes(tokens), options);
        c.put("x", x);
        StepContext step;
        step.sizes = sizes(tokens);
        ASSERT_TRUE(c.executor->step(step).ok());
        both[by_head ? 1 : 0] = c.get("y", tokens * 40);
      }
      EXPECT_EQ(both[0], both[1]) << dtype_info(type).name << ", " << tokens << " rows";
    }
}
REDLINE_INSTANTIATE_PER_ISA(HeadLinearPerIsa);

TEST(HeadLinear, ShapesThatDisagreeAreRefused) {
  Numbers n;
  const auto message = [&](int64_t columns, std::vector<std::vector<int64_t>> shapes) {
    GraphBuilder g("test");
    std::vector<Value> weights;
    for (const auto& shape : shapes) weights.push_back(g.weight(fmt::format("w{}", weights.size()), n.weight(shape)));
    head_linear(g, g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(columns)}), weights);
    return std::string(g.finish().status().message());
  };
  EXPECT_EQ(message(9, {{2, 4}, {2, 4}}), "head_linear: x is [tokens, 9], for 2 heads");
  EXPECT_EQ(message(8, {{2, 4}, {3, 4}}),
            "head_linear: w1 is f32 [3, 4], w0 is f32 [2, 4], x has 4 columns for each head");
  EXPECT_EQ(message(8, {{2, 5}, {2, 5}}),
            "head_linear: w0 is f32 [2, 5], w0 is f32 [2, 5], x has 4 columns for each head");
  GraphBuilder g("test");
  concat_heads(g, g.input("a", DType::kF32, {Dim(Symbol::kTokens), Dim(6)}),
               g.input("b", DType::kF32, {Dim(Symbol::kTokens), Dim(4)}), 3);
  EXPECT_EQ(g.finish().status().message(), "concat_heads: [tokens, 6] and [tokens, 4] for 3 heads");
}

}  // namespace
}  // namespace redline::test
