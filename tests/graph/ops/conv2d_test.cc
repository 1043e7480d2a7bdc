#include "graph/ops/conv2d.h"

#include "graph/ops/add.h"
#include "graph/ops/linear.h"
#include "graph/pass.h"
#include "support/op_formula.h"
#include "support/prepared.h"

namespace redline::test {
namespace {

SymbolValues conv2d_image(int64_t batch, int64_t height, int64_t width) {
  SymbolValues s;
  s[Symbol::kBatch] = batch;
  testing::set_image_size(s, height, width);
  return s;
}
// One pixel; edges everywhere; items that end inside of panels; enough rows for every worker, and a block of them.
const std::vector<SymbolValues> kConv2dSteps = {conv2d_image(1, 1, 1), conv2d_image(2, 1, 5),   conv2d_image(3, 5, 7),
                                                conv2d_image(1, 9, 9), conv2d_image(2, 23, 31), conv2d_image(0, 4, 4)};

struct Network {
  int64_t in, out;
  Conv2dAttrs attrs;
  Dim in_height, in_width, out_height, out_width;
  bool has_bias = true, has_item_bias = false;
  DType type = DType::kF32;
};

struct Conv2dWeights {
  std::unique_ptr<testing::RandomWeight> matrix;  // of another type than float32

  FeatureMap build(GraphBuilder& g, Numbers& n, const Network& net) {
    const Value x = g.input("x", DType::kF32, {kBatch * net.in_height * net.in_width, net.in});
    const int64_t k = net.attrs.kernel;
    WeightSource source = n.weight({net.out, net.in, k, k}, 1.0f);
    if (net.type != DType::kF32) {
      matrix = std::make_unique<testing::RandomWeight>(net.type, net.out, net.in * k * k, 5);
      source.view = matrix->view();
      source.view.shape = {net.out, net.in, k, k};
    }
    const Value bias = net.has_bias ? g.weight("b", n.weight({net.out})) : Value{};
    const Value item_bias = net.has_item_bias ? g.input("item_bias", DType::kF32, {kBatch, net.out}) : Value{};
    return conv2d(g, {x, net.in_height, net.in_width}, kBatch, g.weight("w", source), bias, net.out_height,
                  net.out_width, net.attrs, item_bias);
  }
};

MakeInputs conv2d_inputs(const Network& net) {
  return [=](Numbers& n, const SymbolValues& now) {
    std::map<std::string, HostTensor> in = {
        {"x", matrix(n, (kBatch * net.in_height * net.in_width).eval(now), net.in)}};
    if (net.has_item_bias) in["item_bias"] = matrix(n, now[Symbol::kBatch], net.out);
    return in;
  };
}

// A sum of n random terms loses at most n roundings of partial sums, which stay below the largest result.
double conv2d_tolerance(const Network& net) {
  return static_cast<double>(net.in * net.attrs.kernel * net.attrs.kernel + 8) * 6e-8;
}

// y[i, oy, ox, n] = sum over taps dy, dx and channels c of x[i, stride oy + dy - pad, stride ox + dx - pad, c] w[n, c,
// dy, dx], zero outside; then the biases. With `upsample` x is first resized to y's size: pixel p of P is pixel floor(p
// / P * size of x).
Formula conv2d_formula(const Network& net) {
  return [net](const FormulaInputs& in, int64_t rows, int64_t cols) {
    const int64_t height = net.in_height.eval(in.sizes), width = net.in_width.eval(in.sizes);
    const int64_t out_height = net.out_height.eval(in.sizes), out_width = net.out_width.eval(in.sizes);
    const bool resize = net.attrs.upsample;
    const HostTensor &x = in.tensors.at("x"), &w = in.tensors.at("w");
    const int64_t k = net.attrs.kernel;
    std::vector<double> y;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t item = r / (out_height * out_width), oy = r / out_width % out_height, ox = r % out_width;
      std::vector<double> sums(static_cast<size_t>(cols));
      for (int64_t n = 0; n < cols; ++n) {
        if (net.has_bias) sums[static_cast<size_t>(n)] += in("b", n);
        if (net.has_item_bias) sums[static_cast<size_t>(n)] += in("item_bias", item, n);
      }
      for (int64_t dy = 0; dy < k; ++dy)
        for (int64_t dx = 0; dx < k; ++dx) {
          int64_t at_y = oy * net.attrs.stride + dy - net.attrs.pad_before;
          int64_t at_x = ox * net.attrs.stride + dx - net.attrs.pad_before;
          if (at_y < 0 || at_x < 0 || at_y >= (resize ? out_height : height) || at_x >= (resize ? out_width : width))
            continue;
          if (resize) at_y = at_y * height / out_height, at_x = at_x * width / out_width;
          const double* pixel = x.row((item * height + at_y) * width + at_x);
          for (int64_t n = 0; n < cols; ++n)
            for (int64_t c = 0; c < net.in; ++c)
              sums[static_cast<size_t>(n)] += pixel[c] * w.row(n)[(c * k + dy) * k + dx];
        }
      y.insert(y.end(), sums.begin(), sums.end());
    }
    return y;
  };
}

void expect_conv(const Network& net, double bound, const std::vector<SymbolValues>& steps = kConv2dSteps,
                 const CpuCompileOptions& options = {}) {
  SCOPED_TRACE(fmt::format("{} to {} channels, kernel {} /{}, {}", net.in, net.out, net.attrs.kernel, net.attrs.stride,
                           dtype_info(net.type).name));
  Conv2dWeights weights;
  expect_formula([&](GraphBuilder& g, Numbers& n) { g.output("y", weights.build(g, n, net).value); },
                 conv2d_inputs(net), conv2d_formula(net), steps, bound, options);
}

}  // namespace

TEST(Conv2dOp, EqualsTheFormula) {
  for (int64_t in : {1, 3, 32, 33})
    for (int64_t out : {1, 3, 16, 40}) {
      Network net = {in, out, {}, kH, kW, kH, kW};
      net.has_bias = in != 32;
      net.has_item_bias = out != 16;
      expect_conv(net, conv2d_tolerance(net));
    }
}

TEST(Conv2dOp, StridesAsUnetAndAutoencoderDo) {
  const Network both_sides = {12, 20, {3, 2, 1, 1}, kH, kW, kH2, kW2};
  expect_conv(both_sides, conv2d_tolerance(both_sides));
  const Network after = {12, 20, {3, 2, 0, 1}, kH * Dim(2), kW * Dim(2), kH, kW};
  expect_conv(after, conv2d_tolerance(after));
  const Network patches = {3, 20, {2, 2, 0, 0}, kH * Dim(2), kW * Dim(2), kH, kW};
  expect_conv(patches, conv2d_tolerance(patches));
}

TEST(Conv2dOp, UpsamplesToTheSizeAskedFor) {
  const Network twice = {12, 20, {3, 1, 1, 1, true}, kH, kW, kH * Dim(2), kW * Dim(2)};
  expect_conv(twice, conv2d_tolerance(twice));
  // Where halving rounded up, one less than twice.
  const Network skip = {12, 20, {3, 1, 1, 1, true}, kH2, kW2, kH, kW};
  expect_conv(skip, conv2d_tolerance(skip));
}

TEST(Conv2dOp, TakesEveryPlainType) {
  for (DType type : {DType::kBF16, DType::kF16})
    for (int64_t in : {5, 32}) {
      Network net = {in, 24, {}, kH, kW, kH, kW};
      net.type = type;
      CpuCompileOptions exact;
      exact.exact_f32 = true;
      expect_conv(net, conv2d_tolerance(net), kConv2dSteps, exact);
      // Patches, and float16 weights, may be rounded to bfloat16: two errors of 2^-9 of each term, of which random ones
      // add up to less than of the largest result.
      expect_conv(net, 0x1p-8);
    }
}

TEST(Conv2dOp, OfOnePixelIsAProduct) {
  const Network net = {12, 20, {1, 1, 0, 0}, kH, kW, kH, kW};
  Conv2dWeights weights;
  Numbers numbers;
  GraphBuilder g("test");
  g.output("y", weights.build(g, numbers, net).value);
  auto graph = g.finish();
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  EXPECT_EQ(count(*graph, kLinear), 1);
  EXPECT_EQ(count(*graph, kConvolution), 0);
  expect_conv(net, conv2d_tolerance(net));
  Network with_items = net;
  with_items.has_item_bias = true;
  expect_conv(with_items, conv2d_tolerance(net));
}

TEST(Conv2dOp, CountsTwoOperationsATapAndChannel) {
  for (const int64_t kernel : {1, 3}) {
    Conv2dWeights weights;
    Numbers numbers;
    GraphBuilder g("test");
    g.output("y", weights.build(g, numbers, {12, 20, {kernel, 1, kernel / 2, kernel / 2}, kH, kW, kH, kW}).value);
    auto graph = g.finish();
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    EXPECT_EQ(graph->flops().eval(conv2d_image(2, 5, 7)), 2 * (2 * 5 * 7) * 20 * 12 * kernel * kernel);
  }
}

TEST(Conv2dOp, NamesWhatDoesNotFit) {
  auto message = [](const std::function<void(GraphBuilder&, Numbers&, Value x)>& build) {
    Numbers n;
    GraphBuilder g("test");
    build(g, n, g.input("x", DType::kF32, {kBatch * kH * kW, 8}));
    auto graph = g.finish();
    EXPECT_FALSE(graph.ok());
    return graph.ok() ? "" : graph.status().message();
  };
  auto has = [](const std::string& text, const char* word) { return text.find(word) != std::string::npos; };
  EXPECT_TRUE(has(message([](GraphBuilder& g, Numbers& n, Value x) {
                    conv2d(g, {x, kH, kW}, kBatch, g.weight("w", n.weight({4, 7, 3, 3})), {}, kH, kW);
                  }),
                  "[out, 8, 3, 3]"));
  EXPECT_TRUE(has(message([](GraphBuilder& g, Numbers& n, Value x) {
                    conv2d(g, {x, kH, kW}, kBatch, g.weight("w", n.weight({4, 72})), {}, kH, kW);
                  }),
                  "[out, 8, 3, 3]"));
  EXPECT_TRUE(has(message([](GraphBuilder& g, Numbers& n, Value x) {
                    conv2d(g, {x, kH, kH}, kBatch, g.weight("w", n.weight({4, 8, 3, 3})), {}, kH, kW);
                  }),
                  "x is"));
  EXPECT_TRUE(
      has(message([](GraphBuilder& g, Numbers& n, Value x) {
            conv2d(g, {x, kH, kW}, kBatch, g.weight("w", n.weight({4, 8, 3, 3})), g.weight("b", n.weight({5})), kH, kW);
          }),
          "b is"));
  EXPECT_TRUE(
      has(message([](GraphBuilder& g, Numbers& n, Value x) {
            conv2d(g, {x, kH, kW}, kBatch, g.weight("w", n.weight({4, 8, 3, 3})), {}, kH, kW, {3, 2, 1, 1, true});
          }),
          "stride 2"));
}

TEST(Conv2dOp, WaitsForItsResidualTileByTile) {
  Numbers n;
  GraphBuilder g("test");
  const Value x = g.input("x", DType::kF32, {kBatch * kH * kW, 4});
  const auto conv = [&] {
    return conv2d(g, {x, kH, kW}, kBatch, g.weight("w", n.weight({4, 4, 3, 3})), {}, kH, kW).value;
  };
  const Value shortcut = conv();
  g.output("y", add(g, conv(), shortcut));
  Graph graph = std::move(g.finish()).value();
  ASSERT_TRUE(run_passes(graph).ok());
  const Compiled c = Compiled::make(std::move(graph), 2, conv2d_image(2, 64, 64));
  ASSERT_EQ(c.program->stages.size(), 2u);
  for (const auto& list : c.program->tasks)
    for (const Task& task : list) {
      ASSERT_EQ(task.wait_end - task.wait_begin, task.stage);
      for (uint32_t w = task.wait_begin; w < task.wait_end; ++w) EXPECT_EQ(c.program->waits[w].count, 1u);
    }
}

TEST(Conv2dOp, TilesAreTheOutputWhateverTheSizes) {
  Network net = {16, 80, {}, kH, kW, kH, kW};
  for (int workers : {1, 2, 3, 8}) {
    Conv2dWeights weights;
    Numbers numbers(7);
    GraphBuilder g("test");
    g.output("y", weights.build(g, numbers, net).value);
    Compiled c = Compiled::make(std::move(g.finish()).value(), workers, conv2d_image(3, 130, 70));
    ASSERT_EQ(c.program->stages.size(), 1u);
    const TaskGrid& grid = c.program->stages[0].grid;
    for (const SymbolValues& now : {conv2d_image(1, 1, 1), conv2d_image(3, 5, 7), conv2d_image(1, 130, 70),
                                    conv2d_image(3, 130, 70), conv2d_image(2, 64, 0), conv2d_image(0, 4, 4)}) {
      const int64_t rows = grid.rows.eval(now);
      std::vector<int> covered(static_cast<size_t>(rows * net.out), 0);
      for (int32_t t = 0; t < grid.num_tasks(); ++t) {
        const Tile tile = grid.tile(t, rows, now);
        for (int64_t r = tile.row_begin; r < tile.row_end; ++r)
          for (int64_t col = tile.col_begin; col < tile.col_end; ++col)
            ++covered[static_cast<size_t>(r * net.out + col)];
      }
      EXPECT_EQ(std::count(covered.begin(), covered.end(), 1), rows * net.out) << workers << " workers, " << rows;
    }
  }
}

}  // namespace redline::test
