#include "graph/ops/rope.h"

#include "support/op_formula.h"

namespace redline::test {
namespace {

std::map<std::string, HostTensor> rope_inputs(Numbers& n, int64_t rows, int64_t cols, int64_t length) {
  std::vector<int64_t> positions, lengths;
  for (int64_t i = 0; i < rows; ++i) {
    positions.push_back(i * 3);
    lengths.push_back(length);
  }
  return {{"x", matrix(n, rows, cols)}, {"positions", integers(positions)}, {"lengths", integers(lengths)}};
}

RopeTableAttrs table(int64_t rotary_dim) {
  RopeTableAttrs a;
  for (int64_t i = 0; i < rotary_dim; i += 2)
    a.inverse_frequencies.push_back(std::pow(10000.0f, -static_cast<float>(i) / static_cast<float>(rotary_dim)));
  return a;
}

// Returns the formula of rope. With h half of the rotated width, pair (i, i + h) of each head becomes
// x[i] cos a - x[i + h] sin a and x[i + h] cos a + x[i] sin a. The angle a = position * frequency is rounded to
// float32, as in PyTorch.
Formula rope_formula(int64_t head_dim, const RopeTableAttrs& attrs) {
  return each([=](const FormulaInputs& in, int64_t r, int64_t c) {
    const auto h = static_cast<int64_t>(attrs.inverse_frequencies.size()), i = c % head_dim;
    if (i >= 2 * h) return in("x", r, c);
    const bool beyond =
        attrs.beyond.original_context > 0 && in("lengths", r) > static_cast<double>(attrs.beyond.original_context);
    float frequency =
        (beyond ? attrs.beyond.inverse_frequencies : attrs.inverse_frequencies)[static_cast<size_t>(i % h)];
    const RopeTableAttrs::Dynamic& d = attrs.dynamic;
    const double length = in("lengths", r), context = static_cast<double>(d.original_context);
    if (context > 0 && length > context) {
      const double dim = 2 * static_cast<double>(h), ratio = d.factor * length / context - (d.factor - 1);
      const double base = d.base * std::pow(ratio, dim / (dim - 2));
      frequency = static_cast<float>(std::pow(base, -2 * static_cast<double>(i % h) / dim));
    }
    const double angle = static_cast<float>(in("positions", r)) * frequency;
    const RopeTableAttrs::Growth& g = attrs.growth;
    const double periods =
        g.original_context > 0 ? std::floor(in("positions", r) / static_cast<double>(g.original_context)) : 0;
    const double growth = 1 + g.beta * std::log(1 + periods);
    const double own = growth * in("x", r, c), other = growth * in("x", r, i < h ? c + h : c - h);
    return own * std::cos(angle) + (i < h ? -other : other) * std::sin(angle);
  });
}

void check_rope(int64_t heads, int64_t head_dim, const RopeTableAttrs& attrs, int64_t length) {
  expect_formula(
      [&](GraphBuilder& g, Numbers&) {
        const Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(heads * head_dim)});
        const Value positions = g.input("positions", DType::kI32, {Dim(Symbol::kTokens)});
        const Value lengths = g.input("lengths", DType::kI32, {Dim(Symbol::kTokens)});
        if (!attrs.depends_on_length())
          return g.output("y", rope(g, x, rope_table(g, positions, {}, attrs), {head_dim}));
        g.output("y", rope(g, x, rope_table(g, positions, lengths, attrs), {head_dim}));
      },
      [&](Numbers& n, int64_t rows) { return rope_inputs(n, rows, heads * head_dim, length); },
      rope_formula(head_dim, attrs), {0, 1, 2, 9},
      3e-7);  // cosine and sine rounded once, two products and a sum
}

}  // namespace

TEST(RopeOp, EqualsTheFormula) {
  check_rope(4, 16, table(16), 1);
  check_rope(3, 24, table(24), 1);
  check_rope(5, 20, table(8), 1);  // part of each head
}

TEST(RopeOp, DynamicScalingLooksAtTheLengthOfTheText) {
  RopeTableAttrs a = table(16);
  a.dynamic = {10000, 2, 8};
  check_rope(2, 16, a, 8);
  check_rope(2, 16, a, 40);
}

// Llama 4's attention temperature: positions are 0 to 24, the original context has 4.
TEST(RopeOp, QueriesGrowWithTheirPosition) {
  RopeTableAttrs a = table(16);
  a.growth = {0.5, 4};
  check_rope(2, 16, a, 1);
}

TEST(RopeOp, LongTextsHaveFrequenciesOfTheirOwn) {
  RopeTableAttrs a = table(16);
  a.beyond = {table(16).inverse_frequencies, 8};
  for (size_t i = 0; i < 8; ++i) a.beyond.inverse_frequencies[i] /= 1.5f + static_cast<float>(i);
  check_rope(2, 16, a, 8);
  check_rope(2, 16, a, 9);
}

// The angle of pair i is the position on the axis of i times its frequency: M-RoPE, whose sections may alternate.
TEST(RopeOp, PositionsMayHaveAxes) {
  constexpr int64_t kHeads = 2, kHeadDim = 16;
  for (const std::vector<int32_t>& axes : {std::vector<int32_t>{0, 0, 0, 1, 1, 1, 2, 2}, {0, 1, 2, 0, 1, 2, 0, 1}}) {
    RopeTableAttrs attrs = table(kHeadDim);
    attrs.axes = axes;
    expect_formula(
        [&](GraphBuilder& g, Numbers&) {
          const Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(kHeads * kHeadDim)});
          const Value positions = g.input("positions", DType::kI32, {Dim(Symbol::kTokens), Dim(3)});
          g.output("y", rope(g, x, rope_table(g, positions, {}, attrs), {kHeadDim}));
        },
        [&](Numbers& n, int64_t rows) {
          HostTensor positions = {{rows, 3}, {}};
          for (int64_t i = 0; i < 3 * rows; ++i) positions.data.push_back(static_cast<double>(n.below(1000)));
          return std::map<std::string, HostTensor>{{"x", matrix(n, rows, kHeads * kHeadDim)}, {"positions", positions}};
        },
        each([&](const FormulaInputs& in, int64_t r, int64_t c) {
          const int64_t h = kHeadDim / 2, i = c % kHeadDim;
          const auto pair = static_cast<size_t>(i % h);
          const double angle =
              static_cast<float>(in("positions", r, attrs.axes[pair])) * attrs.inverse_frequencies[pair];
          const double own = in("x", r, c), other = in("x", r, i < h ? c + h : c - h);
          return own * std::cos(angle) + (i < h ? -other : other) * std::sin(angle);
        }),
        {0, 1, 2, 9}, 3e-7);  // cosine and sine rounded once, two products and a sum
  }
}

TEST(RopeOp, AxesThatThePositionsLackAreRefused) {
  const auto message = [](const Shape& positions, std::vector<int32_t> axes) {
    GraphBuilder g("test");
    RopeTableAttrs attrs = table(4);
    attrs.axes = std::move(axes);
    rope_table(g, g.input("positions", DType::kI32, positions), {}, attrs);
    return g.finish().status().message();
  };
  EXPECT_EQ(message({Dim(Symbol::kTokens), Dim(3)}, {0, 3}),
            "rope_table: axes must name one of 3 axes for each of 2 frequencies");
  EXPECT_EQ(message({Dim(Symbol::kTokens), Dim(3)}, {0}),
            "rope_table: axes must name one of 3 axes for each of 2 frequencies");
  EXPECT_EQ(message({Dim(Symbol::kTokens)}, {0, 1}),
            "rope_table: positions must be i32 [tokens, axes], and lengths [tokens]; positions are [tokens]");
  EXPECT_EQ(message({Dim(Symbol::kTokens), Dim(3)}, {}),
            "rope_table: positions must be i32 [tokens], and lengths [tokens]; positions are [tokens, 3]");
}

TEST(RopeOp, ATableWiderThanAHeadIsRefused) {
  GraphBuilder g("test");
  const Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(32)});
  const Value positions = g.input("positions", DType::kI32, {Dim(Symbol::kTokens)});
  rope(g, x, rope_table(g, positions, {}, table(16)), {8});
  EXPECT_EQ(g.finish().status().code(), Code::invalid_argument);
}

}  // namespace redline::test
