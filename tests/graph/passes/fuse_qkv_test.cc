#include "graph/ops/attention.h"
#include "graph/ops/kv_append.h"
#include "graph/ops/linear.h"
#include "graph/ops/qkv.h"
#include "graph/ops/rms_norm.h"
#include "graph/ops/rope.h"
#include "graph/passes/passes.h"
#include "support/adapters.h"
#include "support/graph_harness.h"

namespace redline::test {
namespace {

struct Heads {
  int64_t q, kv, dim;
  bool has_bias, has_norm;
};

Graph attention_block(Numbers& n, const Heads& h) {
  constexpr int64_t kHidden = 24;
  GraphBuilder g("test");
  const Dim tokens(Symbol::kTokens);
  const Value x = g.input("x", DType::kF32, {tokens, Dim(kHidden)});
  const Value positions = g.input("positions", DType::kI32, {tokens});
  const Value lengths = g.input("lengths", DType::kI32, {tokens});
  const Value slots = g.input("slots", DType::kI32, {tokens});
  RopeTableAttrs frequencies;
  for (int64_t i = 0; i < h.dim / 2; ++i) frequencies.inverse_frequencies.push_back(1.0f / static_cast<float>(1 + i));
  const Value table = rope_table(g, positions, lengths, frequencies);
  auto product = [&](const char* name, int64_t heads) {
    const int64_t out = heads * h.dim;
    return linear(g, x, g.weight(name, n.weight({out, kHidden})),
                  h.has_bias ? g.weight(std::string(name) + ".bias", n.weight({out})) : Value{});
  };
  auto rotated = [&](Value v, const char* name) {
    if (h.has_norm) v = rms_norm(g, v, g.weight(name, n.weight({h.dim})), {1e-5f});
    return rope(g, v, table, {h.dim});
  };
  const Value q = rotated(product("q", h.q), "q_norm"), k = rotated(product("k", h.kv), "k_norm");
  AttentionAttrs a;
  a.num_heads = h.q;
  a.num_kv_heads = h.kv;
  a.head_dim = h.dim;
  a.scale = 0.25f;
  g.output("y", attention(g, q, k, product("v", h.kv), positions, slots, a));
  return std::move(g.finish()).value();
}

}  // namespace

// That the compiled form of either gives the same logits is what the golden models show.
TEST(FuseQkv, TheFusedGraphEqualsTheComposedOne) {
  auto table = cpu_kernels();
  ASSERT_TRUE(table.ok());
  for (const Heads& h : {Heads{4, 2, 16, false, false}, Heads{3, 3, 16, true, false}, Heads{8, 1, 32, true, true},
                         Heads{2, 1, 48, false, true}}) {
    Numbers numbers(5), in(6);
    const Graph composed = attention_block(numbers, h);
    Graph fused = composed;
    ASSERT_TRUE(fuse_qkv(fused, CpuTarget(**table, true, 1)).ok());
    EXPECT_EQ(count(fused, kQkv), 1);
    for (const OpDef* gone : {&kLinear, &kRope, &kRmsNorm, &kKvAppend}) EXPECT_EQ(count(fused, *gone), 0);

    ReferenceCache caches[2];
    int64_t length = 0;
    for (int64_t rows : {5, 1, 5}) {
      std::vector<int64_t> positions;
      for (int64_t i = 0; i < rows; ++i) positions.push_back(length + i);
      length += rows;
      const std::map<std::string, HostTensor> inputs = {
          {"x", matrix(in, rows, 24)},
          {"positions", integers(positions)},
          {"lengths", integers(std::vector<int64_t>(positions.size(), 16))},
          {"slots", integers(positions)}};
      const HostTensor want = Interpreter::make(composed)->run(inputs, sizes(rows), caches[0]).value().at("y");
      const HostTensor same = Interpreter::make(fused)->run(inputs, sizes(rows), caches[1]).value().at("y");
      ASSERT_EQ(want.data.size(), same.data.size());
      for (size_t i = 0; i < want.data.size(); ++i) EXPECT_NEAR(want.data[i], same.data[i], 1e-12);
    }
  }
}

TEST(FuseQkv, TheFusedOpHasTheAdaptersOfItsProjections) {
  auto table = cpu_kernels();
  ASSERT_TRUE(table.ok());
  Numbers numbers(5), in(6);
  const Graph plain = attention_block(numbers, {4, 2, 16, true, true});
  Graph composed = plain;
  // k has no site.
  const AdapterSites sites = add_adapter_sites(composed, 16, [](const std::string& name) { return name != "k"; });
  ASSERT_EQ(sites.size(), 2u);
  Graph fused = composed;
  ASSERT_TRUE(fuse_qkv(fused, CpuTarget(**table, true, 1)).ok());
  EXPECT_EQ(count(fused, kQkv), 1);
  EXPECT_EQ(count(fused, kLinear), 0);
  const std::vector<RandomAdapter> adapters = {RandomAdapter::make(in, sites, {3}),
                                               RandomAdapter::make(in, sites, {0, 8})};
  const std::vector<WeightedAdapter> one = {adapters[0].at(1)}, both = {adapters[1].at(0.5f), adapters[0].at(-2)};
  const std::vector<AdapterSegment> segments = {{Symbol::kTokens, 1, 2, one}, {Symbol::kTokens, 2, 4, both}};
  const std::map<std::string, HostTensor> inputs = {{"x", matrix(in, 6, 24)},
                                                    {"positions", integers({0, 1, 2, 3, 4, 5})},
                                                    {"lengths", integers({6, 6, 6, 6, 6, 6})},
                                                    {"slots", integers({0, 1, 2, 3, 4, 5})}};
  const auto run = [&](const Graph& graph, std::span<const AdapterSegment> now) {
    ReferenceCache cache;
    return Interpreter::make(graph)->run(inputs, sizes(6), cache, now).value().at("y").data;
  };
  const std::vector<double> want = run(composed, segments), same = run(fused, segments), none = run(plain, {});
  double difference = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(want[i], same[i], 1e-12);
    difference = std::max(difference, std::abs(want[i] - none[i]));
  }
  EXPECT_GT(difference, 0.1);
  EXPECT_EQ(run(fused, {}), none) << "empty sites change nothing";
}

TEST(FuseQkv, HeadsThatAreNotWholeStripsStay) {
  auto table = cpu_kernels();
  Numbers numbers(5);
  Graph graph = attention_block(numbers, {4, 2, 6, false, false});
  ASSERT_TRUE(fuse_qkv(graph, CpuTarget(**table, true, 1)).ok());
  EXPECT_EQ(count(graph, kQkv), 0);
  EXPECT_EQ(count(graph, kLinear), 3);
}

}  // namespace redline::test
