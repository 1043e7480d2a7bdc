// Every op with a tile lowering against its reference: stage by stage and as a persistent step.
#include "backends/tiles/library_choice.h"
#include "graph/ops/activation.h"
#include "graph/ops/add.h"
#include "graph/ops/embedding.h"
#include "graph/ops/gather_columns.h"
#include "graph/ops/gather_rows.h"
#include "graph/ops/layer_norm.h"
#include "graph/ops/linear.h"
#include "graph/ops/rms_norm.h"
#include "graph/ops/rope.h"
#include "graph/ops/scale.h"
#include "graph/ops/silu_mul.h"
#include "graph/ops/soft_cap.h"
#include "support/random_weight.h"
#include "support/tile_harness.h"

namespace redline::test {
namespace {

const Dim kRows = Symbol::kTokens;
/// Float32 arithmetic of a few operations with library functions: a few units in the last place.
constexpr double kFewRoundings = 2e-6;

Value rows_input(GraphBuilder& g, const char* name, int64_t cols) {
  return g.input(name, DType::kF32, {kRows, Dim(cols)});
}
std::map<std::string, HostTensor> one_matrix(Numbers& n, int64_t rows, int64_t cols) {
  return {{"x", matrix(n, rows, cols)}};
}

TEST(TileOps, Elementwise) {
  for (const int64_t cols : {1, 33, 1025}) {
    const auto two = [cols](Numbers& n, int64_t rows) {
      return std::map<std::string, HostTensor>{{"x", matrix(n, rows, cols)}, {"z", matrix(n, rows, cols)}};
    };
    const auto check = [&](const std::function<Value(GraphBuilder&, Value, Value)>& op) {
      expect_tiles_like_reference(
          [&](GraphBuilder& g, Numbers&) {
            const Value x = rows_input(g, "x", cols), z = rows_input(g, "z", cols);
            g.output("y", op(g, x, z));
          },
          two, {0, 1, 9}, kFewRoundings);
    };
    check([](GraphBuilder& g, Value x, Value z) { return add(g, x, z); });
    check([](GraphBuilder& g, Value x, Value z) { return add(g, scale(g, x, {0.37f}), z); });
    check([](GraphBuilder& g, Value x, Value z) { return add(g, soft_cap(g, x, {1.5f}), z); });
    check([](GraphBuilder& g, Value x, Value z) { return silu_mul(g, x, z); });
  }
  for (const Activation kind : {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kQuickGelu,
                                Activation::kRelu, Activation::kTanh, Activation::kTanh3}) {
    expect_tiles_like_reference(
        [&](GraphBuilder& g, Numbers&) {
          const Value x = rows_input(g, "x", 70);
          g.output("y", gated_activation(g, x, activation(g, x, kind), kind));
        },
        [](Numbers& n, int64_t rows) { return one_matrix(n, rows, 70); }, {5}, kFewRoundings);
  }
}

TEST(TileOps, Norms) {
  for (const auto& [cols, groups] : {std::pair<int64_t, int64_t>{1, 1}, {33, 1}, {64, 5}, {1500, 1}}) {
    const int64_t row = cols * groups;
    expect_tiles_like_reference(
        [&, cols = cols](GraphBuilder& g, Numbers& n) {
          const Value x = rows_input(g, "x", row);
          g.output("y", rms_norm(g, x, g.weight("w", n.weight({cols})), {1e-5f}));
        },
        [&](Numbers& n, int64_t rows) { return one_matrix(n, rows, row); }, {0, 1, 9}, kFewRoundings);
  }
  for (const bool centred : {true, false})
    for (const int64_t cols : {2, 65, 384})
      expect_tiles_like_reference(
          [&](GraphBuilder& g, Numbers& n) {
            const Value x = rows_input(g, "x", cols);
            g.output("y", layer_norm(g, x, g.weight("w", n.weight({cols})), g.weight("b", n.weight({cols})),
                                     {1e-5f, centred}));
          },
          // Two numbers whose difference is small lose bits in the mean.
          [&](Numbers& n, int64_t rows) { return one_matrix(n, rows, cols); }, {1, 18}, 5e-5);
  for (const int64_t group : {7, 64})  // heads, each with its own part of weight and bias
    expect_tiles_like_reference(
        [&](GraphBuilder& g, Numbers& n) {
          const int64_t cols = 3 * group;
          const Value x = rows_input(g, "x", cols);
          g.output("y", layer_norm(g, x, g.weight("w", n.weight({cols})), g.weight("b", n.weight({cols})),
                                   {.eps = 1e-5f, .group = group}));
        },
        [&](Numbers& n, int64_t rows) { return one_matrix(n, rows, 3 * group); }, {1, 18}, 5e-5);
}

TEST(TileOps, RowsAreFound) {
  for (const DType type : testing::weight_types()) {
    const int64_t hidden = dtype_info(type).is_block ? 2 * std::max(64, dtype_info(type).block_elements) : 38;
    const testing::RandomWeight weight(type, 37, hidden, 5);
    expect_tiles_like_reference(
        [&](GraphBuilder& g, Numbers&) {
          WeightSource source;
          source.view = weight.view();
          const Value tokens = g.input("tokens", DType::kI32, {kRows});
          const Value order = g.input("order", DType::kI32, {kRows});
          g.output("y", gather_rows(g, embedding(g, g.weight("w", source), tokens), order));
        },
        [](Numbers& n, int64_t rows) {
          std::vector<int64_t> tokens, order;
          for (int64_t i = 0; i < rows; ++i) tokens.push_back(n.below(37)), order.push_back(n.below(rows));
          return std::map<std::string, HostTensor>{{"tokens", integers(tokens)}, {"order", integers(order)}};
        },
        {1, 20}, 0);  // decoded as the format defines it
  }
}

TEST(TileOps, ColumnsAreFound) {
  std::vector<int32_t> columns;
  for (int32_t i = 0; i < 70; ++i) columns.push_back(i * 29 % 38);
  expect_tiles_like_reference(
      [&](GraphBuilder& g, Numbers&) {
        const Value x = g.input("x", DType::kF32, {kRows, Dim(38)});
        g.output("y", gather_columns(g, x, std::make_shared<const std::vector<int32_t>>(columns)));
      },
      [](Numbers& n, int64_t rows) { return one_matrix(n, rows, 38); }, {1, 20}, 0);
}

TEST(TileOps, Rope) {
  for (const int kind : {0, 1, 2, 3}) {
    RopeTableAttrs attrs;
    for (int i = 0; i < 5; ++i) attrs.inverse_frequencies.push_back(std::pow(0.1f, static_cast<float>(i)));
    attrs.attention_factor = 1.25f;
    if (kind == 1) attrs.dynamic = {10000, 2, 16};
    if (kind == 2) {
      attrs.beyond.inverse_frequencies = {0.5f, 0.4f, 0.3f, 0.2f, 0.1f};
      attrs.beyond.original_context = 16;
    }
    if (kind == 3) attrs.growth = {0.5, 16};
    const bool has_lengths = attrs.depends_on_length();
    expect_tiles_like_reference(
        [&](GraphBuilder& g, Numbers&) {
          const Value x = rows_input(g, "x", 3 * 12);
          const Value positions = g.input("positions", DType::kI32, {kRows});
          const Value lengths = has_lengths ? g.input("lengths", DType::kI32, {kRows}) : Value{};
          g.output("y", rope(g, x, rope_table(g, positions, lengths, attrs), {12}));
        },
        [&](Numbers& n, int64_t rows) {
          std::vector<int64_t> positions, lengths;
          for (int64_t i = 0; i < rows; ++i) positions.push_back(n.below(40)), lengths.push_back(8 + n.below(40));
          std::map<std::string, HostTensor> in = {{"x", matrix(n, rows, 36)}, {"positions", integers(positions)}};
          if (has_lengths) in["lengths"] = integers(lengths);
          return in;
        },
        {1, 6, 23}, 5e-6);  // angles up to 40 are rounded to float32 before cos and sin, on both sides
  }
}

struct LinearSize {
  int64_t out, in;
};
void check_linear(DType type, const LinearSize& size, const std::vector<int64_t>& rows, bool exact) {
  SCOPED_TRACE(fmt::format("{} {}x{}", dtype_info(type).name, size.out, size.in));
  const testing::RandomWeight weight(type, size.out, size.in, 3);
  // The bound of a sum of K products: x may be rounded to bfloat16 (2^-9 of each), sums are float32. The largest output
  // is at least the root of the sum of squares of its products, of which the errors are a part each: in rms 2^-9 /
  // sqrt(3) of that, and 6 times as much at most among some thousand outputs. Formats with minima sum larger parts than
  // they give.
  double parts = 0, values = 0;
  for (size_t i = 0; i < weight.values.size(); ++i) {
    parts += std::pow(weight.parts[i], 2);
    values += std::pow(weight.values[i], 2);
  }
  // With W8A8, x is rounded to int8: 1 / 254 of the largest of a chunk instead, which is sqrt(3) of the rms of x.
  const double rounding = type == DType::kW8A8 ? 1.0 / 254 : 0x1p-9;
  const double tolerance = (exact ? 1e-6 : 6 * rounding) * std::max(1.0, std::sqrt(parts / values));
  expect_tiles_like_reference(
      [&](GraphBuilder& g, Numbers& n) {
        WeightSource source;
        source.view = weight.view();
        const Value x = rows_input(g, "x", size.in), r = rows_input(g, "r", size.out);
        g.output("y", add(g, r, linear(g, x, g.weight("w", source), g.weight("b", n.weight({size.out})))));
      },
      [&](Numbers& n, int64_t count) {
        return std::map<std::string, HostTensor>{{"x", matrix(n, count, size.in)}, {"r", matrix(n, count, size.out)}};
      },
      rows, tolerance, exact);
}

TEST(TileOps, LinearOfEveryType) {
  for (const DType type : testing::weight_types()) {
    const int64_t block = dtype_info(type).block_elements;
    for (const bool exact : {true, false}) check_linear(type, {40, std::max<int64_t>(2 * block, 96)}, {1, 9}, exact);
  }
}

TEST(TileOps, LinearOfEverySize) {
  for (const bool exact : {true, false}) {
    for (const LinearSize size : {LinearSize{1, 1}, {15, 17}, {17, 130}, {129, 36}, {40, 1030}})
      check_linear(DType::kBF16, size, {1, 8}, exact);
    check_linear(DType::kQ4_K, {130, 512}, {0, 1, 7}, exact);
    check_linear(DType::kQ6_K, {20, 256}, {130, 65}, exact);
    check_linear(DType::kQ4_0, {33, 1600}, {1}, exact);  // four chunks of 448, the last one short
  }
  // Launches for more than kFewRows rows multiply with warp groups, persistent steps with warps: to the same bits.
  check_linear(DType::kBF16, {206, 330}, {33, 70}, false);
  check_linear(DType::kQ4_K, {76, 512}, {70}, false);
  check_linear(DType::kQ4_0, {20, 1600}, {64}, false);
  check_linear(DType::kW8A8, {20, 352}, {40}, false);
  check_linear(DType::kW8A8, {76, 288}, {1, 33, 70}, false);
  check_linear(DType::kW8A8, {206, 1056}, {17, 64, 130}, false);
}

// Products of many rows by the library of a device, with and without an epilogue, launched and captured. Few rows, odd
// sizes and blocks are the device's own, and so is what the library fails to multiply.
TEST(TileOps, ManyRowsAreTheLibrarys) {
  for (const auto& [out, in] : {std::pair<int64_t, int64_t>{132, 72}, {20, 8}}) {
    for (const bool has_epilogue : {false, true}) {
      Numbers n(3);
      const testing::RandomWeight weight(DType::kBF16, out, in, 3);
      GraphBuilder g("test");
      WeightSource source;
      source.view = weight.view();
      const Value x = rows_input(g, "x", in), r = rows_input(g, "r", out);
      const Value bias = has_epilogue ? g.weight("b", n.weight({out})) : Value{};
      const Value y = linear(g, x, g.weight("w", source), bias);
      g.output("y", has_epilogue ? add(g, r, y) : y);
      if (!has_epilogue) g.output("r2", scale(g, r, {1}));
      constexpr int64_t kRows = kOwnRows + 6;
      const Graph graph = std::move(g.finish()).value();
      const std::map<std::string, HostTensor> inputs = {{"x", matrix(n, kRows, in)}, {"r", matrix(n, kRows, out)}};
      std::vector<std::vector<float>> results;
      enum Library { kNone, kWorks, kFails, kNoRoomForCopies };
      for (const Library library : {kNone, kWorks, kFails, kNoRoomForCopies}) {
        std::vector<std::string> notices;
        TileCompiled c = TileCompiled::make(graph, sizes(kRows, kRows),
                                            {.exact_f32 = false,
                                             .has_library = library != kNone,
                                             .on_notice = [&](const std::string& text) { notices.push_back(text); }});
        ASSERT_TRUE(c.status.ok()) << c.status.to_string();
        tiles::TileDevice& table = c.device->table();
        if (library == kFails) table.multiply = [](void*, const tiles::MatrixProduct*) { return 1; };
        if (library == kNoRoomForCopies)
          table.memory = [](void*, int64_t* free, int64_t* total) {
            *free = 0;
            *total = 1;
            return 0;
          };
        StepContext step;
        step.sizes = sizes(kRows, kRows);
        for (int again = 0; again < 3; ++again) {
          for (const auto& [name, tensor] : inputs) put(*c.runner, graph, name, tensor);
          ASSERT_TRUE(c.runner->step(step).ok());
          results.push_back(get(*c.runner, "y", kRows * out));
        }
        EXPECT_EQ(notices.size(), library == kFails ? 1u : 0u);  // of the shape, once
        EXPECT_EQ(c.runner->num_kept_weights(), library == kWorks || library == kFails ? 1u : 0u);
      }
      // Both round x to bfloat16 and sum in float32, in orders of their own.
      double largest = 0, worst = 0;
      for (size_t i = 0; i < results[0].size(); ++i) {
        largest = std::max<double>(largest, std::abs(results[0][i]));
        worst = std::max<double>(worst, std::abs(results[0][i] - results[3][i]));
      }
      EXPECT_LE(worst, 1e-5 * largest);
      EXPECT_EQ(results[3], results[4]);
      EXPECT_EQ(results[3], results[5]);
      for (size_t i = 6; i < 9; ++i) EXPECT_EQ(results[i], results[0]);  // own kernels take its place
      for (size_t i = 9; i < 12; ++i) EXPECT_EQ(results[i], results[3]);
    }
  }
}

// A record may give the library fewer rows than a graph of a text step has: the graph multiplies as many as it was
// captured for, of which the rows of the step are right.
TEST(TileOps, TheLibraryMultipliesInGraphsOfMoreRows) {
  for (const bool has_epilogue : {false, true}) {
    constexpr int64_t kOut = 20, kIn = 8, kMaxRows = 40;
    Numbers n(3);
    const testing::RandomWeight weight(DType::kBF16, kOut, kIn, 3);
    GraphBuilder g("test");
    WeightSource source;
    source.view = weight.view();
    const Value x = rows_input(g, "x", kIn);
    const Value y = linear(g, x, g.weight("w", source), has_epilogue ? g.weight("b", n.weight({kOut})) : Value{});
    g.output("y", y);
    g.output("z", scale(g, y, {2}));
    const Graph graph = std::move(g.finish()).value();
    const HostTensor all = matrix(n, kMaxRows, kIn);
    std::map<int64_t, std::vector<float>> own;
    for (const int64_t own_rows : {kOwnRows, int64_t{4}}) {
      TileCompiled c = TileCompiled::make(graph, sizes(kMaxRows, kMaxRows),
                                          {.exact_f32 = false, .has_library = true, .own_rows = own_rows});
      ASSERT_TRUE(c.status.ok()) << c.status.to_string();
      for (int again = 0; again < 3; ++again)
        for (const int64_t rows : {40, 5, 33, 4, 7, 1, 39, 6}) {
          put(*c.runner, graph, "x", {{rows, kIn}, {all.data.begin(), all.data.begin() + rows * kIn}});
          StepContext step;
          step.sizes = sizes(rows, rows);
          ASSERT_TRUE(c.runner->step(step).ok());
          const std::vector<float> got = get(*c.runner, "y", rows * kOut), twice = get(*c.runner, "z", rows * kOut);
          for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(twice[i], 2 * got[i]);
          if (own_rows == kOwnRows) own[rows] = got;
          for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], own[rows][i], 1e-4) << rows;
        }
      EXPECT_EQ(c.runner->num_kept_weights(), own_rows == 4 ? 1u : 0u);
    }
  }
}

TEST(TileOps, AnOpWithoutKernelIsRefusedByName) {
  static const OpDef kStarling = {.name = "starling", .reference = nullptr};
  GraphBuilder g("test");
  const Value x = rows_input(g, "x", 8);
  g.output("y", g.add(kStarling, {x}, DType::kF32, g.info(x).shape));
  const TileCompiled c = TileCompiled::make(std::move(g.finish()).value(), sizes(4));
  EXPECT_EQ(c.status.code(), Code::unsupported);
  EXPECT_NE(c.status.message().find("starling"), std::string::npos) << c.status.message();
}

}  // namespace
}  // namespace redline::test
