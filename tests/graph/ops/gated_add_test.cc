#include "graph/ops/gated_add.h"

#include "support/op_formula.h"

namespace redline::test {
namespace {}  // namespace

TEST(GatedAddOp, EqualsTheFormulaWhereverItemsEnd) {
  for (int64_t cols : {1, 20})
    expect_formula(
        [&](GraphBuilder& g, Numbers&) {
          const Value a = g.input("a", DType::kF32, {kBatch * kImage, Dim(cols)});
          const Value b = g.input("b", DType::kF32, {kBatch * kImage, Dim(cols)});
          const Value table = g.input("table", DType::kF32, {kBatch, Dim(3 * cols)});
          g.output("y", gated_add(g, a, b, table, 2 * cols, kImage));
        },
        [&](Numbers& n, const SymbolValues& s) {
          const int64_t batch = s[Symbol::kBatch], rows = batch * s[Symbol::kImageTokens];
          return std::map<std::string, HostTensor>{
              {"a", matrix(n, rows, cols)}, {"b", matrix(n, rows, cols)}, {"table", matrix(n, batch, 3 * cols)}};
        },
        each([=](const FormulaInputs& in, int64_t r, int64_t c) {
          return in("a", r, c) + in("table", r / in[Symbol::kImageTokens], 2 * cols + c) * in("b", r, c);
        }),
        {image_sizes(1, 0), image_sizes(1, 1), image_sizes(4, 1), image_sizes(3, 7), image_sizes(2, 33),
         image_sizes(0, 3)},
        2e-7);  // two roundings of about the largest, with inputs rounded to float32 for both
}

TEST(GatedAddOp, WhatDoesNotFitIsRefused) {
  Numbers n;
  GraphBuilder g("test");
  const Value a = g.input("a", DType::kF32, {kBatch * kImage, Dim(8)});
  gated_add(g, a, a, g.input("table", DType::kF32, {kBatch, Dim(16)}), 9, kImage);
  EXPECT_EQ(g.finish().status().message(),
            "gated_add: table [batch, 16] has no columns [9, 17) for items of image_tokens rows of "
            "[batch*image_tokens, 8]");
}

}  // namespace redline::test
