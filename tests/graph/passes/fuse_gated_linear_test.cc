#include "graph/ops/activation.h"
#include "graph/ops/add.h"
#include "graph/ops/gated_linear.h"
#include "graph/ops/linear.h"
#include "graph/ops/prepare_x.h"
#include "graph/ops/rms_norm.h"
#include "graph/ops/silu_mul.h"
#include "graph/pass.h"
#include "support/graph_harness.h"
#include "support/random_weight.h"

namespace redline::test {
namespace {

/// norm, gated products, down; weights of one type.
Graph gated_mlp(Numbers& n, testing::RandomWeight& gate, testing::RandomWeight& up, testing::RandomWeight& down,
                bool has_bias) {
  GraphBuilder g("test");
  auto weight = [&](const char* name, testing::RandomWeight& w) {
    return g.weight(name, {.view = w.view(), .source_row = {}, .file = {}});
  };
  const int64_t hidden = gate.k, wide = gate.n;
  const Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(hidden)});
  const Value h = rms_norm(g, x, g.weight("norm", n.weight({hidden})), {});
  auto bias = [&](const char* name) { return has_bias ? g.weight(name, n.weight({wide})) : Value{}; };
  const Value a = linear(g, h, weight("gate", gate), bias("gate_bias"));
  const Value b = linear(g, h, weight("up", up), bias("up_bias"));
  g.output("y", linear(g, silu_mul(g, a, b), weight("down", down)));
  return std::move(g.finish()).value();
}

}  // namespace

TEST(FuseGatedLinear, TheFusedGraphEqualsTheComposedOne) {
  auto table = cpu_kernels();
  ASSERT_TRUE(table.ok());
  for (const DType type : testing::each_kind_of_weight())
    for (bool has_bias : {false, true})
      for (bool exact : {false, true}) {
        SCOPED_TRACE(std::string(dtype_info(type).name) + (has_bias ? " bias" : "") + (exact ? " exact" : ""));
        constexpr int64_t kHidden = 64, kWide = 352;
        testing::RandomWeight gate(type, kWide, kHidden, 1), up(type, kWide, kHidden, 2), down(type, 48, kWide, 3);
        Numbers numbers(3), in(4);
        const Graph composed = gated_mlp(numbers, gate, up, down, has_bias);
        Graph fused = composed;
        ASSERT_TRUE(run_pass("fuse_gated_linear", fused, CpuTarget(**table, exact, 1)).ok());
        EXPECT_EQ(count(fused, kGatedLinear), 1);
        EXPECT_EQ(count(fused, kLinear), 1);
        EXPECT_EQ(count(fused, kSiluMul), 0);
        Graph prepared = fused;
        ASSERT_TRUE(run_pass("prepare_activations", prepared, CpuTarget(**table, exact, 1)).ok());
        EXPECT_EQ(count(prepared, kPrepareX), 0) << "norm and gate store what the products read themselves";

        for (int64_t rows : {1, 3, 33}) {
          const std::map<std::string, HostTensor> inputs = {{"x", matrix(in, rows, kHidden)}};
          const HostTensor want = Interpreter::make(composed)->run(inputs, sizes(rows)).value().at("y");
          const HostTensor same = Interpreter::make(fused)->run(inputs, sizes(rows)).value().at("y");
          double largest = 0;
          for (double v : want.data) largest = std::max(largest, std::abs(v));
          for (size_t i = 0; i < want.data.size(); ++i) EXPECT_NEAR(want.data[i], same.data[i], 1e-12 * largest);

          // Kernels and numbers are the same, so other cuts change no bit.
          std::vector<float> first;
          for (int workers : {1, 3}) {
            CpuCompileOptions options;
            options.exact_f32 = exact;
            Compiled c = Compiled::make(composed, workers, sizes(40), options);
            c.put("x", inputs.at("x"));
            StepContext step;
            step.sizes = sizes(rows);
            ASSERT_TRUE(c.executor->step(step).ok());
            const std::vector<float> got = c.get("y", rows * 48);
            if (first.empty()) first = got;
            EXPECT_EQ(first, got);
            // Block formats round activations to 8 bits, twice: a part in 254 of a group's largest each.
            const double tolerance = exact || type == DType::kF32 ? 1e-5 : 4e-2;
            for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want.data[i], tolerance * largest) << i;
          }
        }
      }
}

TEST(FuseGatedLinear, HalvesOfOneProductBecomeTwoMatrices) {
  auto table = cpu_kernels();
  ASSERT_TRUE(table.ok());
  constexpr int64_t kHidden = 64, kOut = 48;
  for (int64_t half : {int64_t{352}, int64_t{40}})  // the second: no whole row panels of 16 rows
    for (const DType type : testing::each_kind_of_weight())
      for (bool exact : {false, true}) {
        if (type != DType::kF32 && type != DType::kBF16 && half % 32 != 0) continue;  // K of the next product
        SCOPED_TRACE(fmt::format("{} {}{}", dtype_info(type).name, half, exact ? " exact" : ""));
        testing::RandomWeight wide(type, 2 * half, kHidden, 1), down(type, kOut, half, 3);
        Numbers n(3), in(4);
        GraphBuilder g("test");
        const Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(kHidden)});
        const Value h = rms_norm(g, x, g.weight("norm", n.weight({kHidden})), {});
        const auto weight = [&](const char* name, testing::RandomWeight& w) {
          return g.weight(name, {.view = w.view(), .source_row = {}, .file = {}});
        };
        const Value both = linear(g, h, weight("wide", wide), g.weight("bias", n.weight({2 * half})));
        g.output("y", linear(g, gated_activation(g, both, {}, Activation::kGelu), weight("down", down)));
        const Graph composed = std::move(g.finish()).value();
        Graph fused = composed;
        ASSERT_TRUE(run_pass("fuse_gated_linear", fused, CpuTarget(**table, exact, 1)).ok());
        ASSERT_TRUE(fused.check().ok());
        EXPECT_EQ(count(fused, kGatedLinear), 1);
        EXPECT_EQ(count(fused, kGatedActivation), 0);
        for (int64_t rows : {1, 33}) {
          const std::map<std::string, HostTensor> inputs = {{"x", matrix(in, rows, kHidden)}};
          const HostTensor want = Interpreter::make(composed)->run(inputs, sizes(rows)).value().at("y");
          const HostTensor same = Interpreter::make(fused)->run(inputs, sizes(rows)).value().at("y");
          double largest = 0;
          for (double v : want.data) largest = std::max(largest, std::abs(v));
          for (size_t i = 0; i < want.data.size(); ++i) ASSERT_NEAR(want.data[i], same.data[i], 1e-12 * largest);
          CpuCompileOptions options;
          options.exact_f32 = exact;
          Compiled c = Compiled::make(composed, 2, sizes(40), options);
          c.put("x", inputs.at("x"));
          StepContext step;
          step.sizes = sizes(rows);
          ASSERT_TRUE(c.executor->step(step).ok());
          const std::vector<float> got = c.get("y", rows * kOut);
          // As above.
          const double tolerance = exact || type == DType::kF32 ? 1e-5 : 4e-2;
          for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want.data[i], tolerance * largest) << i;
        }
      }
}

TEST(FuseGatedLinear, ProductsOfDifferentInputsStay) {
  auto table = cpu_kernels();
  Numbers n;
  GraphBuilder g("test");
  const Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(32)});
  const Value z = g.input("z", DType::kF32, {Dim(Symbol::kTokens), Dim(32)});
  const Value a = linear(g, x, g.weight("a", n.weight({16, 32})));
  const Value b = linear(g, z, g.weight("b", n.weight({16, 32})));
  g.output("y", silu_mul(g, a, b));
  Graph graph = std::move(g.finish()).value();
  ASSERT_TRUE(run_pass("fuse_gated_linear", graph, CpuTarget(**table, false, 1)).ok());
  EXPECT_EQ(count(graph, kGatedLinear), 0);
}

}  // namespace redline::test
