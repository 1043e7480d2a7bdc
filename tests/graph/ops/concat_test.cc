#include "graph/ops/concat.h"

#include "support/op_formula.h"
#include "support/prepared.h"

namespace redline::test {
namespace {

const std::vector<SymbolValues> kConcatSteps = {image_sizes(1, 0, 0), image_sizes(1, 1, 0),  image_sizes(2, 0, 3),
                                                image_sizes(1, 5, 2), image_sizes(3, 7, 1),  image_sizes(5, 1, 1),
                                                image_sizes(2, 4, 9), image_sizes(2, 33, 2), image_sizes(0, 3, 3)};

}  // namespace

TEST(ConcatRowsOp, PutsTheItemsOfBothTogether) {
  for (int64_t cols : {1, 24})
    expect_formula(
        [&](GraphBuilder& g, Numbers&) {
          const Value a = g.input("a", DType::kF32, {kBatch * kText, Dim(cols)});
          const Value b = g.input("b", DType::kF32, {kBatch * kImage, Dim(cols)});
          g.output("y", concat_rows(g, a, b, kBatch, kText, kImage));
        },
        [&](Numbers& n, const SymbolValues& s) {
          return std::map<std::string, HostTensor>{{"a", matrix(n, s[Symbol::kBatch] * s[Symbol::kTextTokens], cols)},
                                                   {"b", matrix(n, s[Symbol::kBatch] * s[Symbol::kImageTokens], cols)}};
        },
        each([](const FormulaInputs& in, int64_t r, int64_t c) {
          const int64_t text = in[Symbol::kTextTokens], image = in[Symbol::kImageTokens];
          const int64_t item = r / (text + image), at = r % (text + image);
          return at < text ? in("a", item * text + at, c) : in("b", item * image + at - text, c);
        }),
        kConcatSteps, 0);
}

TEST(ConcatRowsOp, MeansWhatItSays) {
  GraphBuilder g("test");
  const Value a = g.input("a", DType::kF32, {kBatch * kText, Dim(1)});
  const Value b = g.input("b", DType::kF32, {kBatch * kImage, Dim(1)});
  const Value y = concat_rows(g, a, b, kBatch, kText, kImage);
  g.output("y", y);
  g.output("z", slice_rows(g, y, kBatch, kText + kImage, kText, kImage));
  auto interpreter = Interpreter::make(std::move(g.finish()).value());
  auto out = interpreter->run({{"a", {{2, 1}, {1, 2}}}, {"b", {{4, 1}, {3, 4, 5, 6}}}}, image_sizes(2, 2, 1));
  EXPECT_EQ(out->at("y").data, (std::vector<double>{1, 3, 4, 2, 5, 6}));
  EXPECT_EQ(out->at("z").data, (std::vector<double>{3, 4, 5, 6}));
}

TEST(SliceRowsOp, TakesRowsOfEveryItem) {
  for (bool first : {true, false})
    expect_formula(
        [&](GraphBuilder& g, Numbers&) {
          const Value x = g.input("x", DType::kF32, {kBatch * (kText + kImage), Dim(7)});
          g.output("y", first ? slice_rows(g, x, kBatch, kText + kImage, 0, kText)
                              : slice_rows(g, x, kBatch, kText + kImage, kText, kImage));
        },
        [&](Numbers& n, const SymbolValues& s) {
          return std::map<std::string, HostTensor>{{"x", matrix(n, (kBatch * (kText + kImage)).eval(s), 7)}};
        },
        each([=](const FormulaInputs& in, int64_t r, int64_t c) {
          const int64_t text = in[Symbol::kTextTokens], image = in[Symbol::kImageTokens], kept = first ? text : image;
          return in("x", r / kept * (text + image) + (first ? 0 : text) + r % kept, c);
        }),
        kConcatSteps, 0);
}

TEST(ConcatColsOp, PutsColumnsSideBySideInEveryForm) {
  // Cut where forms may be cut, and elsewhere.
  for (auto [a_cols, b_cols] : {std::pair<int64_t, int64_t>{64, 32}, {40, 24}, {5, 91}}) {
    const auto build = [&, a_cols = a_cols, b_cols = b_cols](GraphBuilder& g, Numbers&) {
      const Value a = g.input("a", DType::kF32, {kBatch * kImage, Dim(a_cols)});
      return concat_cols(g, a, g.input("b", DType::kF32, {kBatch * kImage, Dim(b_cols)}));
    };
    const auto inputs = [a_cols = a_cols, b_cols = b_cols](Numbers& n, const SymbolValues& s) {
      const int64_t rows = s[Symbol::kBatch] * s[Symbol::kImageTokens];
      return std::map<std::string, HostTensor>{{"a", matrix(n, rows, a_cols)}, {"b", matrix(n, rows, b_cols)}};
    };
    expect_formula([&](GraphBuilder& g, Numbers& n) { g.output("y", build(g, n)); }, inputs,
                   each([a_cols = a_cols](const FormulaInputs& in, int64_t r, int64_t c) {
                     return c < a_cols ? in("a", r, c) : in("b", r, c - a_cols);
                   }),
                   kConcatSteps, 0);
    expect_prepares(build, inputs, kConcatSteps);
  }
}

TEST(ConcatOps, WhatDoesNotFitIsRefused) {
  auto message = [](const std::function<void(GraphBuilder&, Value)>& build) {
    GraphBuilder g("test");
    build(g, g.input("x", DType::kF32, {kBatch * kText, Dim(8)}));
    auto graph = g.finish();
    EXPECT_EQ(graph.status().code(), Code::invalid_argument);
    return graph.status().message();
  };
  EXPECT_EQ(message([](auto& g, Value x) {
              concat_rows(g, x, g.input("b", DType::kF32, {kBatch * kText, Dim(9)}), kBatch, kText, kText);
            }),
            "concat_rows: [batch*text_tokens, 8] and [batch*text_tokens, 9] are not f32 matrices of the same columns");
  EXPECT_EQ(message([](auto& g, Value x) { slice_rows(g, x, kBatch, kImage, 0, 1); }),
            "slice_rows: [batch*text_tokens, 8] is not f32, batch items of image_tokens rows");
  EXPECT_EQ(message([](auto& g, Value x) {
              concat_cols(g, x, g.input("b", DType::kF32, {kBatch, Dim(8)}));
            }),
            "concat_cols: [batch*text_tokens, 8] and [batch, 8] are not f32 matrices of the same rows");
  // Seen when sizes are bound.
  GraphBuilder g("test");
  const Value x = g.input("x", DType::kF32, {kBatch * kText, Dim(8)});
  g.output("y", slice_rows(g, x, kBatch, kText, 2, kText));
  CpuCompileOptions options;
  options.bounds = image_sizes(1, 0, 5);
  options.kernels = *cpu_kernels();
  WorkerTeam team(1);
  EXPECT_EQ(compile_cpu(std::move(g.finish()).value(), options, team).status().message(),
            "test: slice_rows: rows 2 + text_tokens are past the end of items of text_tokens");
}

}  // namespace redline::test
