#include "graph/ops/add.h"
#include "graph/ops/conv2d.h"
#include "graph/pass.h"
#include "support/prepared.h"

namespace redline::test {
namespace {

constexpr int64_t kChannels = 64;

SymbolValues picture(int64_t batch, int64_t height, int64_t width) {
  SymbolValues s;
  s[Symbol::kBatch] = batch;
  s[testing::kHeight] = height;
  s[testing::kWidth] = width;
  return s;
}

/// A residual block with weights of `type`.
struct Block {
  testing::RandomWeight first, second;

  explicit Block(DType type) : first(type, kChannels, kChannels * 9, 5), second(type, kChannels, kChannels * 9, 6) {}
  Value conv(GraphBuilder& g, Numbers& n, Value x, const testing::RandomWeight& weight, const char* name, Value items) {
    WeightSource source = n.weight({kChannels, kChannels, 3, 3});
    source.view = weight.view();
    source.view.shape = {kChannels, kChannels, 3, 3};
    return conv2d(g, {x, kH, kW}, kBatch, g.weight(name, source),
                  g.weight(std::string(name) + ".b", n.weight({kChannels})), kH, kW, {}, items)
        .value;
  }
  Value norm(GraphBuilder& g, Numbers& n, Value x, const char* name) {
    const Value weight = g.weight(std::string(name) + ".w", n.weight({kChannels}));
    return group_norm(g, {x, kH, kW}, kBatch, weight, g.weight(std::string(name) + ".b", n.weight({kChannels})),
                      {8, 1e-6f, true});
  }
  void build(GraphBuilder& g, Numbers& n) {
    const Value x = g.input("x", DType::kF32, {kBatch * kH * kW, kChannels});
    const Value time = g.input("time", DType::kF32, {kBatch, kChannels});
    Value h = conv(g, n, norm(g, n, x, "norm1"), first, "conv1", time);
    h = conv(g, n, norm(g, n, h, "norm2"), second, "conv2", {});
    g.output("y", add(g, x, h));
  }
  /// The numbers own the weights.
  Graph graph(Numbers& n) {
    GraphBuilder g("test");
    build(g, n);
    return std::move(g.finish()).value();
  }
};

}  // namespace

TEST(FuseGroupNorm, TheFusedGraphEqualsTheComposedOne) {
  Block block(DType::kBF16);
  Numbers weights(3), fused_weights(3);
  Graph composed = block.graph(weights), fused = block.graph(fused_weights);
  // Any table with a tile unit fuses; no kernel runs here.
  CpuKernels kernels;
  kernels.has_tile_unit = true;
  ASSERT_TRUE(run_passes(fused).ok());
  ASSERT_TRUE(run_pass("fuse_group_norm", fused, CpuTarget(kernels, false, 1)).ok());
  ASSERT_TRUE(fused.check().ok());
  EXPECT_EQ(count(composed, kGroupNorm), 2);
  EXPECT_EQ(count(composed, kAdd), 1);
  EXPECT_EQ(count(fused, kGroupNorm), 0);
  EXPECT_EQ(count(fused, kGroupNormSums), 2);
  EXPECT_EQ(count(fused, kAdd), 0);

  Numbers in(4);
  const SymbolValues now = picture(2, 5, 7);
  const std::map<std::string, HostTensor> inputs = {{"x", matrix(in, 70, kChannels)},
                                                    {"time", matrix(in, 2, kChannels)}};
  auto a = Interpreter::make(composed), b = Interpreter::make(fused);
  const HostTensor want = a->run(inputs, now).value().at("y");
  const HostTensor same = b->run(inputs, now).value().at("y");
  for (size_t i = 0; i < want.data.size(); ++i) EXPECT_DOUBLE_EQ(want.data[i], same.data[i]);
}

TEST(FuseGroupNorm, DotProductsConvolveDirectlyToo) {
  CpuKernels dots;
  dots.has_fast_bf16_dot = true;
  Block block(DType::kBF16);
  Numbers weights(3);
  Graph graph = block.graph(weights);
  ASSERT_TRUE(run_pass("fuse_group_norm", graph, CpuTarget(dots, false, 1)).ok());
  EXPECT_EQ(count(graph, kGroupNorm), 0);
}

TEST(FuseGroupNorm, Float32ConvolvesDirectlyToo) {
  CpuKernels plain;
  plain.conv_f32 = [](const ConvPatchesArgs&) {};
  for (const auto& [exact, type] : {std::pair{false, DType::kBF16}, {false, DType::kF16}, {true, DType::kF32}}) {
    Block block(type);
    Numbers weights(3);
    Graph graph = block.graph(weights);
    ASSERT_TRUE(run_pass("fuse_group_norm", graph, CpuTarget(plain, exact, 1)).ok());
    EXPECT_EQ(count(graph, kGroupNorm), 0) << dtype_info(type).name;
  }
}

TEST(FuseGroupNorm, CompiledItEqualsTheReference) {
  Block block(DType::kBF16);
  expect_like_reference(
      [&](GraphBuilder& g, Numbers& n) { block.build(g, n); },
      [&](Numbers& n, const SymbolValues& now) {
        return std::map<std::string, HostTensor>{{"x", matrix(n, (kBatch * kH * kW).eval(now), kChannels)},
                                                 {"time", matrix(n, now[Symbol::kBatch], kChannels)}};
      },
      // Both convolutions round what they are given to eight bits: as in conv2d_test.cc, twice.
      {picture(1, 1, 1), picture(2, 1, 5), picture(3, 5, 7), picture(2, 23, 31), picture(0, 4, 4)}, 0x1p-7);
}

TEST(FuseGroupNorm, OnlyWhereConvolutionsHaveNoPatches) {
  CpuKernels none, unit;
  unit.has_tile_unit = true;
  for (const auto& [kernels, exact, type] :
       {std::tuple{none, false, DType::kBF16}, {unit, true, DType::kBF16}, {unit, false, DType::kF32}}) {
    Block block(type);
    Numbers weights(3);
    Graph graph = block.graph(weights);
    ASSERT_TRUE(run_pass("fuse_group_norm", graph, CpuTarget(kernels, exact, 1)).ok());
    EXPECT_EQ(count(graph, kGroupNorm), 2);
  }
}

}  // namespace redline::test
