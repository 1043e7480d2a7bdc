// add, add_row, scale, soft_cap, silu_mul, gather_rows, gather_columns, place_rows, add_rows, embedding: the ops whose
// tiles are rows or columns of one matrix.
#include "graph/ops/add.h"
#include "graph/ops/embedding.h"
#include "graph/ops/gather_columns.h"
#include "graph/ops/gather_rows.h"
#include "graph/ops/place_rows.h"
#include "graph/ops/scale.h"
#include "graph/ops/silu_mul.h"
#include "graph/ops/soft_cap.h"
#include "support/op_formula.h"

namespace redline::test {

const std::vector<int64_t> kElementwiseRows = {0, 1, 2, 5, 31};

TEST(AddOp, EqualsTheFormula) {
  expect_formula(
      [](GraphBuilder& g, Numbers&) {
        const Value a = g.input("a", DType::kF32, {Dim(Symbol::kTokens), Dim(19)});
        g.output("y", add(g, a, g.input("b", DType::kF32, {Dim(Symbol::kTokens), Dim(19)})));
      },
      [](Numbers& n, int64_t rows) {
        return std::map<std::string, HostTensor>{{"a", matrix(n, rows, 19)}, {"b", matrix(n, rows, 19)}};
      },
      each([](const FormulaInputs& in, int64_t r, int64_t c) { return in("a", r, c) + in("b", r, c); }),
      kElementwiseRows,
      6e-8);  // one rounding
}

TEST(AddRowOp, EqualsTheFormula) {
  expect_formula(
      [](GraphBuilder& g, Numbers& n) {
        const Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(19)});
        g.output("y", add_row(g, x, g.weight("row", n.weight({19}))));
      },
      [](Numbers& n, int64_t rows) {
        return std::map<std::string, HostTensor>{{"x", matrix(n, rows, 19)}};
      },
      each([](const FormulaInputs& in, int64_t r, int64_t c) { return in("x", r, c) + in("row", c); }),
      kElementwiseRows,
      6e-8);  // one rounding
}

TEST(AddRowOp, ARowOfAnotherSizeIsRefused) {
  Numbers n;
  GraphBuilder g("test");
  add_row(g, g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(19)}), g.weight("row", n.weight({18})));
  EXPECT_EQ(g.finish().status().message(), "add_row: row is [18], x is [tokens, 19]");
}

TEST(ScaleOp, EqualsTheFormula) {
  expect_formula(
      [](GraphBuilder& g, Numbers&) {
        g.output("y", scale(g, g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(19)}), {0.3f}));
      },
      [](Numbers& n, int64_t rows) {
        return std::map<std::string, HostTensor>{{"x", matrix(n, rows, 19)}};
      },
      each([](const FormulaInputs& in, int64_t r, int64_t c) { return static_cast<double>(0.3f) * in("x", r, c); }),
      kElementwiseRows, 6e-8);  // one rounding
}

TEST(SoftCapOp, EqualsTheFormula) {
  for (const int64_t cols : {19, 5000})
    expect_formula(
        [&](GraphBuilder& g, Numbers&) {
          g.output("y", soft_cap(g, g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(cols)}), {0.75f}));
        },
        [&](Numbers& n, int64_t rows) {
          return std::map<std::string, HostTensor>{{"x", matrix(n, rows, cols)}};
        },
        each([](const FormulaInputs& in, int64_t r, int64_t c) { return 0.75 * std::tanh(in("x", r, c) / 0.75); }),
        kElementwiseRows,
        10 * 6e-8);  // of the kernel
}

TEST(SoftCapOp, ACapOfZeroIsRefused) {
  GraphBuilder g("test");
  soft_cap(g, g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(4)}), {});
  EXPECT_EQ(g.finish().status().message(), "soft_cap: a cap of 0");
}

TEST(SiluMulOp, EqualsTheFormula) {
  expect_formula(
      [](GraphBuilder& g, Numbers&) {
        const Value gate = g.input("gate", DType::kF32, {Dim(Symbol::kTokens), Dim(97)});
        g.output("y", silu_mul(g, gate, g.input("up", DType::kF32, {Dim(Symbol::kTokens), Dim(97)})));
      },
      [](Numbers& n, int64_t rows) {
        return std::map<std::string, HostTensor>{{"gate", matrix(n, rows, 97)}, {"up", matrix(n, rows, 97)}};
      },
      each([](const FormulaInputs& in, int64_t r, int64_t c) {
        return in("gate", r, c) / (1 + std::exp(-in("gate", r, c))) * in("up", r, c);
      }),
      kElementwiseRows, 5e-7);  // the exponential's few units in the last place, a sum, a division, a product
}

TEST(EmbeddingOp, TakesRowsExactly) {
  expect_formula(
      [](GraphBuilder& g, Numbers& n) {
        const Value table = g.weight("table", n.weight({37, 20}));
        g.output("y", embedding(g, table, g.input("tokens", DType::kI32, {Dim(Symbol::kTokens)})));
      },
      [](Numbers& n, int64_t rows) {
        std::vector<int64_t> ids;
        for (int64_t i = 0; i < rows; ++i) ids.push_back(n.below(37));
        return std::map<std::string, HostTensor>{{"tokens", integers(ids)}};
      },
      each([](const FormulaInputs& in, int64_t r, int64_t c) {
        return in("table", static_cast<int64_t>(in("tokens", r)), c);
      }),
      kElementwiseRows, 0);
}

TEST(GatherRowsOp, TakesRowsExactly) {
  expect_formula(
      [](GraphBuilder& g, Numbers&) {
        const Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(12)});
        g.output("y", gather_rows(g, x, g.input("rows", DType::kI32, {Dim(Symbol::kLogitRows)})));
      },
      [](Numbers& n, int64_t rows) {
        std::vector<int64_t> ids;
        for (int64_t i = 0; i < rows; ++i) ids.push_back(n.below(rows));
        return std::map<std::string, HostTensor>{{"x", matrix(n, rows, 12)}, {"rows", integers(ids)}};
      },
      each([](const FormulaInputs& in, int64_t r, int64_t c) {
        return in("x", static_cast<int64_t>(in("rows", r)), c);
      }),
      kElementwiseRows, 0);
}

/// Sizes of steps in which some, none or all of the tokens have embedding rows.
std::vector<SymbolValues> steps_with_rows() {
  std::vector<SymbolValues> steps;
  for (const auto& [tokens, rows] : {std::pair{0, 0}, std::pair{1, 0}, std::pair{1, 1}, std::pair{31, 1},
                                     std::pair{31, 7}, std::pair{31, 31}, std::pair{64, 17}}) {
    SymbolValues now;
    now[Symbol::kTokens] = tokens;
    now[Symbol::kEmbeddingRows] = rows;
    steps.push_back(now);
  }
  return steps;
}

void check_place_rows(int64_t cols, bool adds, double tolerance) {
  expect_formula(
      [=](GraphBuilder& g, Numbers&) {
        // x is made by an op, so that it may be changed in place.
        const Value x = scale(g, g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(cols)}), {2.0f});
        const Value rows = g.input("rows", DType::kF32, {Dim(Symbol::kEmbeddingRows), Dim(cols)});
        const Value at = g.input("at", DType::kI32, {Dim(Symbol::kEmbeddingRows)});
        g.output("y", adds ? add_rows(g, x, rows, at) : place_rows(g, x, rows, at));
      },
      [=](Numbers& n, const SymbolValues& now) {
        const int64_t tokens = now[Symbol::kTokens], rows = now[Symbol::kEmbeddingRows];
        std::vector<int64_t> at;
        for (int64_t i = 0; i < rows; ++i) at.push_back((i + 1) * tokens / rows - 1);
        return std::map<std::string, HostTensor>{
            {"x", matrix(n, tokens, cols)}, {"rows", matrix(n, rows, cols)}, {"at", integers(at)}};
      },
      each([=](const FormulaInputs& in, int64_t r, int64_t c) {
        for (int64_t i = 0; i < in[Symbol::kEmbeddingRows]; ++i)
          if (in("at", i) == static_cast<double>(r)) return in("rows", i, c) + (adds ? 2 * in("x", r, c) : 0);
        return 2 * in("x", r, c);
      }),
      steps_with_rows(), tolerance);
}

TEST(PlaceRowsOp, EqualsTheFormula) {
  for (const int64_t cols : {1, 15, 16, 17, 19, 1030}) check_place_rows(cols, false, 0);
}

TEST(AddRowsOp, EqualsTheFormula) {
  for (const int64_t cols : {1, 15, 16, 17, 19, 1030}) check_place_rows(cols, true, 6e-8);  // one rounding
}

TEST(PlaceRowsOp, RowsOfAnotherWidthAreRefused) {
  const auto message = [](int64_t cols, const Dim& count) {
    GraphBuilder g("test");
    place_rows(g, g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(19)}),
               g.input("rows", DType::kF32, {Dim(Symbol::kEmbeddingRows), Dim(cols)}),
               g.input("at", DType::kI32, {count}));
    return g.finish().status().message();
  };
  EXPECT_EQ(message(18, Symbol::kEmbeddingRows),
            "place_rows: rows [embedding_rows, 18] must have as many columns as x [tokens, 19]");
  EXPECT_EQ(message(19, Symbol::kTokens),
            "place_rows: at [tokens] must be an i32 vector with an element for each of the rows [embedding_rows, 19]");
}

TEST(GatherColumnsOp, TakesColumnsExactly) {
  const std::vector<int32_t> columns = {11, 0, 3, 3, 7, 1, 2, 10, 9, 4, 5, 6, 8, 0, 11};
  expect_formula(
      [&](GraphBuilder& g, Numbers&) {
        const Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(12)});
        const Value y = gather_columns(g, x, std::make_shared<const std::vector<int32_t>>(columns));
        EXPECT_EQ(gather_columns(g, x, std::make_shared<const std::vector<int32_t>>(columns)).id, y.id);
        g.output("y", y);
      },
      [](Numbers& n, int64_t rows) {
        return std::map<std::string, HostTensor>{{"x", matrix(n, rows, 12)}};
      },
      each([&](const FormulaInputs& in, int64_t r, int64_t c) { return in("x", r, columns[static_cast<size_t>(c)]); }),
      kElementwiseRows, 0);
  GraphBuilder g("wrong");
  const Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(12)});
  EXPECT_FALSE(gather_columns(g, x, std::make_shared<const std::vector<int32_t>>(1, 12)).valid());
  EXPECT_EQ(g.finish().status().message(), "gather_columns: column 12 is outside [0, 12)");
}

}  // namespace redline::test
