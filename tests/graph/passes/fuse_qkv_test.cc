#include <numeric>

#include "backends/host_memory.h"
#include "graph/adapter_sites.h"
#include "graph/ops/attention.h"
#include "graph/ops/kv_append.h"
#include "graph/ops/linear.h"
#include "graph/ops/qkv.h"
#include "graph/ops/rms_norm.h"
#include "graph/ops/rope.h"
#include "graph/pass.h"
#include "support/adapters.h"
#include "support/graph_harness.h"
#include "support/sequences.h"

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
  RopeTableAttrs frequencies;
  for (int64_t i = 0; i < h.dim / 2; ++i) frequencies.inverse_frequencies.push_back(1.0f / static_cast<float>(1 + i));
  const Value table = rope_table(g, positions, {}, frequencies);
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
  a.scale = 0.25f;
  StateAttrs cache;
  cache.num_heads = h.kv;
  cache.head_dim = h.dim;
  g.output("y", attention(g, q, kv_append(g, k, product("v", h.kv), g.state("cache", cache)), a));
  return std::move(g.finish()).value();
}

}  // namespace

// The compiled fused form against the references of the composed one, in float64.
TEST(FuseQkv, TheFusedOpEqualsTheComposedOps) {
  auto table = cpu_kernels();
  ASSERT_TRUE(table.ok());
  for (const Heads& h : {Heads{4, 2, 16, false, false}, Heads{3, 3, 16, true, false}, Heads{8, 1, 32, true, true},
                         Heads{2, 1, 48, false, true}}) {
    Numbers numbers(5);
    const Graph composed = attention_block(numbers, h);
    Graph fused = composed;
    ASSERT_TRUE(run_pass("fuse_qkv", fused, CpuTarget(**table, true, 1)).ok());
    EXPECT_EQ(count(fused, kQkv), 1);
    for (const OpDef* gone : {&kLinear, &kRope, &kRmsNorm, &kKvAppend}) EXPECT_EQ(count(fused, *gone), 0);

    Interpreter reference = Interpreter::make(composed).value();
    const StatePlan& plan = reference.states();
    constexpr int64_t kPages = 8;
    const std::vector<int64_t> pages = {kPages};
    for (const int workers : {1, 3}) {
      TestSequences expected(plan, make_host_state_memory(plan, pages).value(), kPages, 1);
      CpuCompileOptions options;
      options.exact_f32 = true;
      Compiled compiled = Compiled::make(fused, workers, sizes(67), options);
      TestSequences got(compiled.program->states, compiled.executor->make_state_memory(pages).value(), kPages, 1,
                        {compiled.program->attention, h.q, h.kv, h.dim, 67, 1});
      Numbers in(6);
      for (const int64_t rows : {5, 1, 67, 1}) {
        std::vector<int64_t> positions;
        for (int64_t i = 0; i < rows; ++i) positions.push_back(expected[0].length() + i);
        const std::map<std::string, HostTensor> inputs = {{"x", matrix(in, rows, 24)},
                                                          {"positions", integers(positions)}};
        const HostTensor want = reference.run(inputs, expected.begin({rows})).value().at("y");
        expected.commit();
        for (const auto& [name, tensor] : inputs) compiled.put(name.c_str(), tensor);
        ASSERT_TRUE(compiled.executor->step(got.begin({rows})).ok());
        got.commit();
        const std::vector<float> y = compiled.get("y", std::ssize(want.data));
        double largest = 0;
        for (const double e : want.data) largest = std::max(largest, std::abs(e));
        // Products over 24 features and scores over the head, in float32.
        for (size_t i = 0; i < want.data.size(); ++i)
          ASSERT_NEAR(y[i], want.data[i], 1e-5 * largest) << rows << " rows, element " << i;
      }
    }
  }
}

// The compiled fused form with sites against the references of the composed one: adapters of some rows, and none.
TEST(FuseQkv, TheFusedOpHasTheAdaptersOfItsProjections) {
  constexpr int64_t kPages = 8, kRows = 40;
  const Heads h = {4, 2, 16, true, true};
  const std::vector<int64_t> pages = {kPages};
  for (const std::string& isa : isa_paths()) {
    SCOPED_TRACE(isa);
    const CpuKernels kernels = cpu_kernels_for(isa).value();
    Numbers numbers(5), in(6);
    const Graph plain = attention_block(numbers, h);
    Graph composed = plain;
    // k has no site.
    const AdapterSites sites = add_adapter_sites(composed, 16, [](const std::string& name) { return name != "k"; });
    ASSERT_EQ(sites.size(), 2u);
    Graph fused = composed;
    ASSERT_TRUE(run_pass("fuse_qkv", fused, CpuTarget(kernels, true, 1)).ok());
    EXPECT_EQ(count(fused, kQkv), 1);
    EXPECT_EQ(count(fused, kLinear), 0);

    std::vector<int64_t> positions(kRows);
    std::iota(positions.begin(), positions.end(), 0);
    const std::map<std::string, HostTensor> inputs = {{"x", matrix(in, kRows, 24)}, {"positions", integers(positions)}};
    const auto compiled = [&](const Graph& graph, int workers, std::span<const AdapterSegment> segments) {
      WorkerTeam team(workers, std::pair{kernels.worker_begin, kernels.worker_end});
      CpuCompileOptions options;
      options.kernels = &kernels;
      options.exact_f32 = true;
      options.bounds = sizes(kRows);
      Executor executor(compile_cpu(graph, options, team).value(), team);
      TestSequences sequences(executor.program()->states, executor.make_state_memory(pages).value(), kPages, 1,
                              {executor.program()->attention, h.q, h.kv, h.dim, kRows, 1});
      for (size_t i = 0; i < inputs.at("x").data.size(); ++i)
        static_cast<float*>(executor.host_input("x"))[i] = static_cast<float>(inputs.at("x").data[i]);
      std::copy(positions.begin(), positions.end(), static_cast<int32_t*>(executor.host_input("positions")));
      StepContext step = sequences.begin({kRows});
      step.adapters = segments;
      EXPECT_TRUE(executor.step(step).ok());
      sequences.commit();
      const auto* y = static_cast<const float*>(executor.host_output("y"));
      return std::vector<float>(y, y + kRows * h.q * h.dim);
    };
    const std::vector<float> none = compiled(plain, 2, {});
    EXPECT_EQ(compiled(fused, 2, {}), none) << "empty sites change nothing";  // also sets the sites' types
    const std::vector<RandomAdapter> adapters = {RandomAdapter::make(in, sites, {3}),
                                                 RandomAdapter::make(in, sites, {0, 8})};
    const std::vector<WeightedAdapter> one = {adapters[0].at(1)}, both = {adapters[1].at(0.5f), adapters[0].at(-2)};
    const std::vector<AdapterSegment> segments = {{Symbol::kTokens, 1, 2, one}, {Symbol::kTokens, 2, 35, both}};

    Interpreter reference = Interpreter::make(composed).value();
    TestSequences expected(reference.states(), make_host_state_memory(reference.states(), pages).value(), kPages, 1);
    StepContext step = expected.begin({kRows});
    step.adapters = segments;
    const std::vector<double> want = reference.run(inputs, step).value().at("y").data;
    double largest = 0, error = 0, difference = 0;
    const std::vector<float> got = compiled(fused, 1, segments);
    for (size_t i = 0; i < want.size(); ++i) {
      largest = std::max(largest, std::abs(want[i]));
      error = std::max(error, std::abs(want[i] - double{got[i]}));
      difference = std::max(difference, std::abs(double{none[i]} - want[i]));
    }
    EXPECT_LE(error, 1e-5 * largest) << "products over 24 features and scores over the head, in float32";
    EXPECT_GT(difference, 0.01 * largest) << "the adapters matter";
    EXPECT_EQ(compiled(fused, 3, segments), got) << "other workers";
  }
}

TEST(FuseQkv, HeadsThatAreNotWholeRowPanelsStay) {
  auto table = cpu_kernels();
  Numbers numbers(5);
  Graph graph = attention_block(numbers, {4, 2, 6, false, false});
  ASSERT_TRUE(run_pass("fuse_qkv", graph, CpuTarget(**table, true, 1)).ok());
  EXPECT_EQ(count(graph, kQkv), 0);
  EXPECT_EQ(count(graph, kLinear), 3);
}

}  // namespace redline::test
