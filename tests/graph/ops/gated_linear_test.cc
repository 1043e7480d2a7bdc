#include "graph/ops/gated_linear.h"

#include "graph/ops/activation.h"
#include "graph/ops/linear.h"
#include "graph/ops/silu_mul.h"
#include "support/rounded_products.h"

namespace redline::test {
namespace {

/// The gate's product, or f of one product, with the largest slope of f.
struct GatedActivation {
  const char* name;
  double (*f)(double);
  double slope;
};
double silu(double x) { return x / (1 + std::exp(-x)); }
double gelu(double x) { return x * (1 + std::erf(x / std::sqrt(2.0))) / 2; }

/// f(a) * b. Errors: those of a by the slope of f; f in float32 by polynomials of a few units in the last place; the
/// product.
Bounded gated(const GatedActivation& activation, const Bounded& a, const Bounded& b) {
  const double f = activation.f(a.value), f_error = activation.slope * a.error + 8 * kRoundoffF32 * (std::abs(f) + 1);
  return {f * b.value, f_error * (std::abs(b.value) + b.error) + (std::abs(f) + f_error) * b.error +
                           kRoundoffF32 * std::abs(f * b.value)};
}

}  // namespace

TEST(GatedLinearOp, EqualsTheFormulaWithinTheRoundingOfItsActivations) {
  constexpr int64_t kRows[] = {0, 1, 7, 8, 13, 33, 83};
  for (const auto& [features, in] : {std::pair<int64_t, int64_t>{16, 32}, {101, 96}})
    for (const DType type : testing::each_kind_of_weight())
      for (const bool exact : {false, true})
        for (const bool has_bias : {false, true}) {
          SCOPED_TRACE(fmt::format("{} {}x{}{}{}", dtype_info(type).name, features, in, exact ? " exact" : "",
                                   has_bias ? " bias" : ""));
          const testing::RandomWeight gate(type, features, in, 1), up(type, features, in, 2);
          // Silu of two matrices, or gelu of one (kActivatedLinear).
          const GatedActivation f = has_bias ? GatedActivation{"silu", silu, 1.1} : GatedActivation{"gelu", gelu, 1.13};
          Numbers n(3);
          const std::vector<float> biases[] = {n.vector(features), n.vector(features)};
          GraphBuilder g("test");
          const Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(in)});
          const auto product = [&](const char* name, const testing::RandomWeight& w, const std::vector<float>& bias) {
            const Value matrix = g.weight(name, {.view = w.view(), .source_row = {}, .file = {}});
            const TensorView view = {DType::kF32, {features}, bias.data()};
            return linear(g, x, matrix,
                          has_bias ? g.weight(std::string(name) + ".bias", {.view = view, .source_row = {}, .file = {}})
                                   : Value{});
          };
          const Value a = product("gate", gate, biases[0]);
          g.output("y", has_bias ? silu_mul(g, a, product("up", up, biases[1])) : activation(g, a, Activation::kGelu));
          const Graph graph = std::move(g.finish()).value();

          Compiled compiled[] = {Compiled::make(graph, 1, sizes(83), {.exact_f32 = exact}),
                                 Compiled::make(graph, 3, sizes(83), {.exact_f32 = exact})};
          EXPECT_TRUE(has_stage(*compiled[0].program, has_bias ? kGatedLinear : kActivatedLinear));
          for (const int64_t rows : kRows) {
            const HostTensor input = matrix(n, rows, in);
            std::vector<float> got[2];
            for (int i = 0; i < 2; ++i) {
              compiled[i].put("x", input);
              StepContext step;
              step.sizes = sizes(rows);
              ASSERT_TRUE(compiled[i].executor->step(step).ok());
              got[i] = compiled[i].get("y", rows * features);
            }
            EXPECT_EQ(got[0], got[1]) << "other workers, other bits";
            std::vector<Bounded> want;
            const ActivationLayout layout = layout_of(type, exact, rows);
            for (int64_t r = 0; r < rows; ++r) {
              const RoundedRow row(layout, input.row(r), in);
              for (int64_t c = 0; c < features; ++c) {
                const auto at = [&](const testing::RandomWeight& w, const std::vector<float>& bias) {
                  return row.product(w, c, has_bias ? bias[static_cast<size_t>(c)] : 0);
                };
                want.push_back(gated(f, at(gate, biases[0]), has_bias ? at(up, biases[1]) : Bounded{1, 0}));
              }
            }
            SCOPED_TRACE(fmt::format("{} rows", rows));
            expect_within(got[0], want);
          }
        }
}

// Rows are multiplied in blocks, whose first rows must be those of panels in the layout of x and in that of the output:
// every pair of layouts, in more rows than a block has.
TEST(GatedLinearOp, RowsInBlocksHaveTheSameBitsAsInAStepOfTheirOwn) {
  constexpr int64_t kIn = 64, kFeatures = 640, kOut = 8, kRows = 1031, kPart = 200;
  for (const DType type : testing::each_kind_of_weight())
    for (const DType down : testing::each_kind_of_weight()) {
      SCOPED_TRACE(fmt::format("{}, then {}", dtype_info(type).name, dtype_info(down).name));
      const testing::RandomWeight weights[] = {
          {type, kFeatures, kIn, 1}, {type, kFeatures, kIn, 2}, {down, kOut, kFeatures, 3}};
      GraphBuilder g("test");
      const Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(kIn)});
      const auto product = [&](const char* name, const Value& of, const testing::RandomWeight& w) {
        return linear(g, of, g.weight(name, {.view = w.view(), .source_row = {}, .file = {}}), Value{});
      };
      const Value gate = product("gate", x, weights[0]), up = product("up", x, weights[1]);
      g.output("y", product("down", silu_mul(g, gate, up), weights[2]));
      const Graph graph = std::move(g.finish()).value();
      Compiled compiled = Compiled::make(graph, 1, sizes(kRows), {});
      EXPECT_TRUE(has_stage(*compiled.program, kGatedLinear));
      Numbers n(4);
      const HostTensor all = matrix(n, kRows, kIn);
      const auto run = [&](int64_t begin, int64_t end) {
        HostTensor part = {{end - begin, kIn}, {}};
        part.data.assign(all.data.begin() + begin * kIn, all.data.begin() + end * kIn);
        compiled.put("x", part);
        StepContext step;
        step.sizes = sizes(end - begin);
        EXPECT_TRUE(compiled.executor->step(step).ok());
        return compiled.get("y", (end - begin) * kOut);
      };
      const std::vector<float> want = run(0, kRows);
      for (int64_t begin = 0; begin + kPart <= kRows; begin += 257) {
        const std::vector<float> got = run(begin, begin + kPart);
        for (int64_t i = 0; i < kPart * kOut; ++i)
          ASSERT_EQ(got[i], want[begin * kOut + i]) << "row " << begin + i / kOut;
      }
    }
}

// 5 groups of 256 columns for 2 or 4 workers, 3 for 2: the groups that are left are cut by rows.
TEST(GatedLinearOp, GroupsThatDoNotDivideByTheWorkersHaveTheSameBits) {
  constexpr int64_t kIn = 96, kOut = 24, kMaxRows = 83;
  for (const int64_t features : {int64_t{768}, int64_t{1280}})
    for (const DType type : {DType::kQ4_0, DType::kQ8_0, DType::kQ4_K}) {
      const int64_t in = type == DType::kQ4_K ? 256 : kIn;
      const testing::RandomWeight weights[] = {
          {type, features, in, 1}, {type, features, in, 2}, {DType::kQ4_0, kOut, features, 3}};
      GraphBuilder g("test");
      const Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(in)});
      const auto product = [&](const char* name, const Value& of, const testing::RandomWeight& w) {
        return linear(g, of, g.weight(name, {.view = w.view(), .source_row = {}, .file = {}}), Value{});
      };
      const Value gate = product("gate", x, weights[0]), up = product("up", x, weights[1]);
      g.output("y", product("down", silu_mul(g, gate, up), weights[2]));
      const Graph graph = std::move(g.finish()).value();
      Compiled alone = Compiled::make(graph, 1, sizes(kMaxRows), {});
      EXPECT_TRUE(has_stage(*alone.program, kGatedLinear));
      for (const int workers : {2, 3, 4}) {
        Compiled compiled = Compiled::make(graph, workers, sizes(kMaxRows), {});
        Numbers n(4);
        for (const int64_t rows : {1, 2, 7, 16, 40, 64, 65, 83}) {
          SCOPED_TRACE(
              fmt::format("{} {} columns, {} workers, {} rows", dtype_info(type).name, features, workers, rows));
          const HostTensor input = matrix(n, rows, in);
          std::vector<float> got[2];
          for (Compiled* each : {&alone, &compiled}) {
            each->put("x", input);
            StepContext step;
            step.sizes = sizes(rows);
            ASSERT_TRUE(each->executor->step(step).ok());
            got[each == &alone ? 0 : 1] = each->get("y", rows * kOut);
          }
          EXPECT_EQ(got[0], got[1]);
        }
      }
    }
}

}  // namespace redline::test
