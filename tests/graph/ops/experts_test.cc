// Routing and products of a mixture of experts against formulas in float64, on every instruction set; the same bits as
// the plain product; no expert that no token has chosen.
#include <algorithm>
#include <deque>
#include <numeric>

#include "graph/ops/column_squares.h"
#include "graph/ops/expert_linear.h"
#include "graph/ops/linear.h"
#include "graph/ops/moe_router.h"
#include "support/isa_test.h"
#include "support/op_formula.h"
#include "support/random_weight.h"

namespace redline::test {
namespace {

using Numbers64 = std::vector<double>;

/// The scores of a token by their definitions.
Numbers64 scores_of(const RouterAttrs& a, const double* logits) {
  Numbers64 s(static_cast<size_t>(a.num_experts));
  double sum = 0;
  for (size_t e = 0; e < s.size(); ++e) sum += std::exp(logits[e]);
  for (size_t e = 0; e < s.size(); ++e)
    s[e] = a.score == RouterScore::kSoftmax ? std::exp(logits[e]) / sum : 1 / (1 + std::exp(-logits[e]));
  return s;
}

struct Choice {
  std::vector<int64_t> experts;
  Numbers64 weights;
};

/// Indices of the `count` largest keys.
std::vector<int64_t> best_of(const Numbers64& keys, int64_t count) {
  std::vector<int64_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return keys[static_cast<size_t>(a)] > keys[static_cast<size_t>(b)]; });
  order.resize(static_cast<size_t>(count));
  return order;
}

Choice choose(const RouterAttrs& a, const double* logits, const Numbers64& bias) {
  const Numbers64 scores = scores_of(a, logits);
  Numbers64 keys = scores;
  for (size_t e = 0; e < bias.size(); ++e) keys[e] += bias[e];
  if (a.groups_per_token < a.num_groups) {
    const auto size = static_cast<size_t>(a.num_experts / a.num_groups);
    Numbers64 of_group;
    for (size_t first = 0; first < keys.size(); first += size) {
      const Numbers64 members(keys.begin() + static_cast<int64_t>(first),
                              keys.begin() + static_cast<int64_t>(first + size));
      double sum = 0;
      for (const int64_t i : best_of(members, a.groups_by_two_best ? 2 : 1)) sum += members[static_cast<size_t>(i)];
      of_group.push_back(sum);
    }
    const auto kept = best_of(of_group, a.groups_per_token);
    for (size_t e = 0; e < keys.size(); ++e)
      if (std::find(kept.begin(), kept.end(), static_cast<int64_t>(e / size)) == kept.end()) keys[e] = -INFINITY;
  }
  Choice c;
  c.experts = best_of(keys, a.experts_per_token);
  double sum = 0;
  for (const int64_t e : c.experts) sum += scores[static_cast<size_t>(e)];
  for (const int64_t e : c.experts)
    c.weights.push_back(scores[static_cast<size_t>(e)] / (a.normalizes ? sum : 1) * double{a.scale});
  return c;
}

std::vector<RouterAttrs> routers() {
  return {
      {.num_experts = 1, .experts_per_token = 1},
      {.num_experts = 5, .experts_per_token = 2},
      {.num_experts = 8, .experts_per_token = 8, .normalizes = true},
      {.num_experts = 17, .experts_per_token = 3, .score = RouterScore::kSigmoid, .normalizes = true, .scale = 2.5f},
      {.num_experts = 16, .experts_per_token = 4, .scale = 16, .num_groups = 4, .groups_per_token = 2},
      {.num_experts = 33,
       .experts_per_token = 6,
       .score = RouterScore::kSigmoid,
       .normalizes = true,
       .num_groups = 3,
       .groups_per_token = 2,
       .groups_by_two_best = true}};
}

const std::vector<int64_t> kTokens = {0, 1, 2, 13, 33, 64};

TEST(MoeRouter, EqualsTheFormula) {
  for (const RouterAttrs& a : routers())
    for (const bool has_bias : {false, true}) {
      SCOPED_TRACE(fmt::format("{} of {} experts, bias {}", a.experts_per_token, a.num_experts, has_bias));
      expect_formula(
          [&](GraphBuilder& g, Numbers& n) {
            const Value logits = g.input("logits", DType::kF32, {Dim(Symbol::kTokens), Dim(a.num_experts)});
            const Value bias = has_bias ? g.weight("bias", n.weight({a.num_experts}, 0.2f)) : Value{};
            g.output("y", moe_router(g, logits, bias, a).weights);
          },
          [&](Numbers& n, int64_t rows) {
            return std::map<std::string, HostTensor>{{"logits", matrix(n, rows, a.num_experts)}};
          },
          [&](const FormulaInputs& in, int64_t rows, int64_t) {
            Numbers64 y;
            for (int64_t t = 0; t < rows; ++t)
              for (const double weight :
                   choose(a, in.tensors.at("logits").row(t), has_bias ? in.tensors.at("bias").data : Numbers64{})
                       .weights)
                y.push_back(weight);
            return y;
          },
          // An exponential is off by 2 units, a sum of n by n, the quotients by one each.
          kTokens, static_cast<double>(a.num_experts + 8) * 6e-8);
    }
}

TEST(MoeRouter, GroupsPairsByExpertThenByToken) {
  for (const RouterAttrs& a : routers())
    for (const int64_t tokens : kTokens)
      for (const int workers : {1, 3}) {
        GraphBuilder g("test");
        const Routing r =
            moe_router(g, g.input("logits", DType::kF32, {Dim(Symbol::kTokens), Dim(a.num_experts)}), {}, a);
        g.output("weights", r.weights);
        g.output("offsets", r.offsets);
        g.output("order", r.order);
        auto graph = g.finish();
        ASSERT_TRUE(graph.ok()) << graph.status().to_string();
        Numbers n(static_cast<uint64_t>(tokens));
        const HostTensor logits = matrix(n, tokens, a.num_experts);
        Compiled c = Compiled::make(std::move(graph).value(), workers, sizes(70));
        StepContext step;
        step.sizes = sizes(tokens);
        for (int again = 0; again < 2; ++again) {
          c.put("logits", logits);
          ASSERT_TRUE(c.executor->step(step).ok());
        }
        const auto* offsets = static_cast<const int32_t*>(c.executor->host_output("offsets"));
        const auto* order = static_cast<const int32_t*>(c.executor->host_output("order"));
        EXPECT_EQ(offsets[0], 0);
        EXPECT_EQ(offsets[a.num_experts], tokens * a.experts_per_token);
        std::vector<std::vector<int32_t>> want(static_cast<size_t>(a.num_experts));
        for (int64_t t = 0; t < tokens; ++t) {
          const Choice choice = choose(a, logits.row(t), {});
          for (size_t i = 0; i < choice.experts.size(); ++i)
            want[static_cast<size_t>(choice.experts[i])].push_back(
                static_cast<int32_t>(t * a.experts_per_token + static_cast<int64_t>(i)));
        }
        for (size_t e = 0; e < want.size(); ++e)
          EXPECT_EQ(std::vector<int32_t>(order + offsets[e], order + offsets[e + 1]), want[e]) << "expert " << e;
      }
}

TEST(ExpertSquares, EqualsTheFormula) {
  constexpr int64_t kCols = 5;
  for (const RouterAttrs& a : routers())
    for (const bool by_expert : {false, true}) {
      SCOPED_TRACE(fmt::format("{} of {} experts, by expert {}", a.experts_per_token, a.num_experts, by_expert));
      const Dim rows = Dim(Symbol::kTokens) * Dim(by_expert ? a.experts_per_token : 1);
      expect_formula(
          [&](GraphBuilder& g, Numbers&) {
            const Value logits = g.input("logits", DType::kF32, {Dim(Symbol::kTokens), Dim(a.num_experts)});
            const Value x = g.input("x", DType::kF32, {rows, Dim(kCols)});
            g.output("y", expert_squares(g, x, moe_router(g, logits, {}, a), by_expert));
          },
          [&](Numbers& n, int64_t tokens) {
            return std::map<std::string, HostTensor>{
                {"logits", matrix(n, tokens, a.num_experts)},
                {"x", matrix(n, by_expert ? tokens * a.experts_per_token : tokens, kCols)}};
          },
          [&](const FormulaInputs& in, int64_t, int64_t) {
            std::vector<std::vector<int64_t>> of_expert(static_cast<size_t>(a.num_experts));
            for (int64_t t = 0; t < in[Symbol::kTokens]; ++t)
              for (const int64_t e : choose(a, in.tensors.at("logits").row(t), {}).experts)
                of_expert[static_cast<size_t>(e)].push_back(t);
            Numbers64 y;
            int64_t pair = 0;
            for (const auto& own : of_expert) {
              for (int64_t c = 0; c < kCols; ++c) {
                double sum = 0;
                for (size_t i = 0; i < own.size(); ++i) {
                  const double value = in("x", by_expert ? pair + static_cast<int64_t>(i) : own[i], c);
                  sum += value * value;
                }
                y.push_back(sum);
              }
              pair += std::ssize(own);
              y.push_back(static_cast<double>(own.size()));
            }
            return y;
          },
          kTokens, 65 * 6e-8);  // sums of up to 64 squares
    }
}

TEST(MoeRouter, EqualOrUndefinedScoresStillGiveDifferentExperts) {
  const RouterAttrs a = {.num_experts = 6, .experts_per_token = 3, .num_groups = 3, .groups_per_token = 2};
  for (const float score : {0.0f, -INFINITY, NAN}) {
    std::vector<float> scores(6, score), keys(9), weights(3);
    std::vector<int32_t> chosen(3);
    choose_experts<float>(a, scores.data(), nullptr, keys.data(), chosen.data(), weights.data());
    EXPECT_EQ(chosen, (std::vector<int32_t>{0, 1, 2}));
  }
  std::vector<float> scores = {NAN, 0.1f, 0.5f, 0.2f, 0.3f, NAN}, keys(9), weights(3);
  std::vector<int32_t> chosen(3);
  choose_experts<float>(a, scores.data(), nullptr, keys.data(), chosen.data(), weights.data());
  EXPECT_EQ(chosen, (std::vector<int32_t>{2, 4, 3}));  // the groups of 0.5 and 0.3
}

TEST(MoeRouter, ImpossibleSettingsAreRefused) {
  const std::vector<std::pair<RouterAttrs, std::string>> cases = {
      {{.num_experts = 4, .experts_per_token = 5}, "moe_router: 5 experts for each token of 4 to choose from"},
      {{.num_experts = 4, .experts_per_token = 0}, "moe_router: 0 experts for each token of 4 to choose from"},
      {{.num_experts = 4, .experts_per_token = 1, .num_groups = 3},
       "moe_router: 4 experts in 3 groups, of which a token has 1"},
      {{.num_experts = 4, .experts_per_token = 3, .num_groups = 2, .groups_per_token = 1},
       "moe_router: 3 experts for each token of 2 to choose from"},
      {{.num_experts = 5, .experts_per_token = 3}, "moe_router: logits are [tokens, 4], expected [tokens, 5]"}};
  for (const auto& [attrs, message] : cases) {
    GraphBuilder g("test");
    moe_router(g, g.input("logits", DType::kF32, {Dim(Symbol::kTokens), Dim(4)}), {}, attrs);
    EXPECT_EQ(g.finish().status().message(), message);
  }
}

/// A block of experts: sizes, and what it has.
struct Block {
  int64_t experts, choices, hidden, inner;
  bool bias = false;
  float limit = 0;
  bool shared = false, gate = false;
};

std::vector<Value> matrices(GraphBuilder& g, Numbers& n, const std::string& name, int64_t count, int64_t rows,
                            int64_t cols) {
  std::vector<Value> all;
  for (int64_t e = 0; e < count; ++e)
    all.push_back(
        g.weight(fmt::format("{}{}", name, e), n.weight({rows, cols}, 1 / std::sqrt(static_cast<float>(cols)))));
  return all;
}

void build_block(GraphBuilder& g, Numbers& n, const Block& b) {
  const Dim T = Symbol::kTokens;
  const Value x = g.input("x", DType::kF32, {T, Dim(b.hidden)});
  const Value logits = g.input("logits", DType::kF32, {T, Dim(b.experts)});
  const Routing r = moe_router(g, logits, {}, {.num_experts = b.experts, .experts_per_token = b.choices});
  const auto gate = matrices(g, n, "gate", b.experts, b.inner, b.hidden);
  const auto up = matrices(g, n, "up", b.experts, b.inner, b.hidden);
  const auto down = matrices(g, n, "down", b.experts, b.hidden, b.inner);
  const auto bias = [&](const char* name, int64_t features) {
    return b.bias ? g.weight(name, n.weight({b.experts, features})) : Value{};
  };
  const Value gate_bias = bias("gate_bias", b.inner), up_bias = bias("up_bias", b.inner);
  const Value inner =
      expert_gated_linear(g, x, r, {gate, gate_bias}, {up, up_bias},
                          {.activation = b.limit > 0 ? Activation::kQuickGelu : Activation::kSilu, .limit = b.limit});
  const Value y = expert_linear(g, inner, r, {down, bias("down_bias", b.hidden)});
  const Value shared = b.shared ? g.input("shared", DType::kF32, {T, Dim(b.hidden)}) : Value{};
  const Value shared_gate = b.gate ? g.input("shared_gate", DType::kF32, {T, Dim(1)}) : Value{};
  g.output("y", expert_sum(g, y, r.weights, shared, shared_gate));
}

std::map<std::string, HostTensor> experts_inputs_of(const Block& b, Numbers& n, int64_t rows) {
  std::map<std::string, HostTensor> in = {{"x", matrix(n, rows, b.hidden)}, {"logits", matrix(n, rows, b.experts)}};
  if (b.shared) in["shared"] = matrix(n, rows, b.hidden);
  if (b.gate) in["shared_gate"] = matrix(n, rows, 1);
  return in;
}

/// Every expert for every token: those that were not chosen count zero times.
std::vector<double> formula_of(const Block& b, const FormulaInputs& in, int64_t rows) {
  Numbers64 y;
  for (int64_t t = 0; t < rows; ++t) {
    const Choice choice =
        choose({.num_experts = b.experts, .experts_per_token = b.choices}, in.tensors.at("logits").row(t), {});
    Numbers64 sum(static_cast<size_t>(b.hidden), 0.0);
    for (size_t i = 0; i < choice.experts.size(); ++i) {
      const int64_t e = choice.experts[i];
      const auto times = [&](const char* name, int64_t row, const Numbers64& x) {
        double dot = b.bias ? in(fmt::format("{}_bias", name), e, row) : 0;
        for (size_t k = 0; k < x.size(); ++k)
          dot += in(fmt::format("{}{}", name, e), row, static_cast<int64_t>(k)) * x[k];
        return dot;
      };
      const double* row = in.tensors.at("x").row(t);
      const Numbers64 x(row, row + b.hidden);
      Numbers64 inner;
      for (int64_t n = 0; n < b.inner; ++n) {
        double g = times("gate", n, x), u = times("up", n, x);
        if (b.limit > 0) {
          g = std::min(g, double{b.limit});
          u = std::max(-double{b.limit}, std::min(u, double{b.limit})) + 1;
        }
        inner.push_back(g / (1 + std::exp(b.limit > 0 ? -1.702 * g : -g)) * u);
      }
      for (int64_t n = 0; n < b.hidden; ++n) sum[static_cast<size_t>(n)] += choice.weights[i] * times("down", n, inner);
    }
    for (int64_t n = 0; n < b.hidden; ++n) {
      const double of_all = b.shared ? in("shared", t, n) / (b.gate ? 1 + std::exp(-in("shared_gate", t)) : 1) : 0;
      y.push_back(sum[static_cast<size_t>(n)] + of_all);
    }
  }
  return y;
}

const std::vector<Block> kBlocks = {{1, 1, 1, 1},
                                    {4, 2, 15, 17, true},
                                    {5, 5, 16, 16, false, 0, true},
                                    {7, 2, 17, 15, true, 0.7f},
                                    {3, 1, 31, 47, false, 0, true, true},
                                    {64, 4, 36, 20, false, 1.5f, true}};

TEST(Experts, EqualTheFormula) {
  for (const Block& b : kBlocks) {
    SCOPED_TRACE(fmt::format("{} of {} experts, {} x {}", b.choices, b.experts, b.hidden, b.inner));
    expect_formula(
        [&](GraphBuilder& g, Numbers& n) { build_block(g, n, b); },
        [&](Numbers& n, int64_t rows) { return experts_inputs_of(b, n, rows); },
        [&](const FormulaInputs& in, int64_t rows, int64_t) { return formula_of(b, in, rows); }, kTokens,
        // Three products one after the other, each off by its number of terms; 16: the router and the activation.
        static_cast<double>(b.hidden * 2 + b.inner + 16) * 6e-8);
  }
}

class ExpertsPerIsa : public IsaTest {
 protected:
  CpuCompileOptions options() const {
    CpuCompileOptions o;
    o.kernels = &kernels();
    return o;
  }
};

TEST_P(ExpertsPerIsa, EqualTheFormula) {
  // Around the vector widths and the row panels.
  const std::vector<Block> blocks = {{3, 2, 7, 9}, {3, 2, 15, 16, true}, {3, 2, 17, 31}, {3, 2, 33, 37, true, 0.7f}};
  for (const Block& b : blocks) {
    SCOPED_TRACE(fmt::format("{} of {} experts, {} x {}", b.choices, b.experts, b.hidden, b.inner));
    CpuCompileOptions exact = options();
    exact.exact_f32 = true;
    expect_formula([&](GraphBuilder& g, Numbers& n) { build_block(g, n, b); },
                   [&](Numbers& n, const SymbolValues& now) { return experts_inputs_of(b, n, now[Symbol::kTokens]); },
                   [&](const FormulaInputs& in, int64_t rows, int64_t) { return formula_of(b, in, rows); },
                   {sizes(0), sizes(1), sizes(16), sizes(29)}, static_cast<double>(b.hidden * 2 + b.inner + 16) * 6e-8,
                   exact);
  }
}

std::vector<float> run_experts(GraphBuilder& g, const std::map<std::string, HostTensor>& in, int64_t tokens,
                               int64_t cols, const CpuCompileOptions& options, int workers = 2) {
  auto graph = g.finish();
  EXPECT_TRUE(graph.ok()) << graph.status().to_string();
  if (!graph.ok()) return {};
  Compiled c = Compiled::make(std::move(graph).value(), workers, sizes(tokens), options);
  for (const auto& [name, tensor] : in) c.put(name.c_str(), tensor);
  StepContext step;
  step.sizes = sizes(tokens);
  EXPECT_TRUE(c.executor->step(step).ok());
  return c.get("y", tokens * cols);
}

// One expert of all tokens is the plain product: the same kernels for the same number of rows, so the same bits, for
// every type of weight. 300 rows are more than one block of rows.
TEST_P(ExpertsPerIsa, OneExpertHasTheBitsOfThePlainProduct) {
  for (const DType type : testing::weight_types())
    for (const int64_t tokens : {1, 5, 7, 16, 300}) {
      if (tokens == 300 && type != DType::kF32 && type != DType::kBF16 && type != DType::kQ4_0) continue;
      const int64_t in_features =
          dtype_info(type).is_block ? std::max<int64_t>(dtype_info(type).block_elements, 64) : 36;
      const int64_t features = 40;
      const testing::RandomWeight weight(type, features, in_features, 3);
      Numbers n(5);
      const HostTensor x = matrix(n, tokens, in_features);
      const HostTensor logits = {{tokens, 1}, Numbers64(static_cast<size_t>(tokens), 0.5)};
      const WeightSource source = {weight.view(), {}, {}};
      GraphBuilder plain("plain"), grouped("grouped");
      plain.output("y", linear(plain, plain.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(in_features)}),
                               plain.weight("w", source)));
      const Routing r = moe_router(grouped, grouped.input("logits", DType::kF32, {Dim(Symbol::kTokens), Dim(1)}), {},
                                   {.num_experts = 1, .experts_per_token = 1});
      const Value w = grouped.weight("w", source);
      grouped.output(
          "y",
          expert_linear(grouped, grouped.input("x", DType::kF32, {Dim(Symbol::kTokens) * Dim(1), Dim(in_features)}), r,
                        {{&w, 1}, {}}));
      EXPECT_EQ(run_experts(plain, {{"x", x}}, tokens, features, options()),
                run_experts(grouped, {{"x", x}, {"logits", logits}}, tokens, features, options()))
          << dtype_info(type).name << ", " << tokens << " rows";
    }
}

// Block formats, gate and up of different ones: what is computed of the experts is within the rounding of their
// kernels.
TEST_P(ExpertsPerIsa, EveryTypeOfGateAndUp) {
  const int64_t hidden = 256, inner = 48, experts = 3, tokens = 9;
  const auto types = testing::weight_types();
  for (size_t i = 0; i < types.size(); ++i) {
    const DType gate_type = types[i], up_type = types[(i + 1) % types.size()];
    std::deque<testing::RandomWeight> weights;
    for (int64_t e = 0; e < 2 * experts; ++e)
      weights.emplace_back(e < experts ? gate_type : up_type, inner, hidden, static_cast<uint32_t>(e));
    GraphBuilder g("test");
    std::vector<Value> all;
    for (const auto& w : weights) all.push_back(g.weight(fmt::format("w{}", all.size()), {w.view(), {}, {}}));
    const Routing r = moe_router(g, g.input("logits", DType::kF32, {Dim(Symbol::kTokens), Dim(experts)}), {},
                                 {.num_experts = experts, .experts_per_token = 2});
    g.output("y", expert_gated_linear(g, g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(hidden)}), r,
                                      {std::span(all).first(static_cast<size_t>(experts)), {}},
                                      {std::span(all).last(static_cast<size_t>(experts)), {}}, {}));
    Numbers n(11);
    const std::map<std::string, HostTensor> in = {{"x", matrix(n, tokens, hidden)},
                                                  {"logits", matrix(n, tokens, experts)}};
    auto graph = g.finish();
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    auto interpreter = Interpreter::make(*graph);
    ASSERT_TRUE(interpreter.ok());
    auto want = interpreter->run(in, sizes(tokens));
    ASSERT_TRUE(want.ok());
    Compiled c = Compiled::make(std::move(graph).value(), 2, sizes(tokens), options());
    for (const auto& [name, tensor] : in) c.put(name.c_str(), tensor);
    StepContext step;
    step.sizes = sizes(tokens);
    ASSERT_TRUE(c.executor->step(step).ok());
    // x in 8 bits is off by 1/254 of the largest of its group, which is about 2.5 times their mean size; the errors of
    // 256 terms add up like a random walk, as the terms do. Two such factors, and the extremes of thousands of results:
    // 4 %.
    EXPECT_LE(error_of(c.get("y", tokens * 2 * inner), (*want)["y"].data), 0.04)
        << dtype_info(gate_type).name << ", " << dtype_info(up_type).name;
  }
}

// A token alone has the bits that it has among others, where the kernel does not depend on the number of rows.
TEST_P(ExpertsPerIsa, ATokenAloneHasTheSameBits) {
  const int64_t hidden = 64, inner = 33, experts = 4, tokens = 23;
  for (const DType type : testing::each_kind_of_weight()) {
    std::deque<testing::RandomWeight> weights;
    for (int64_t e = 0; e < 2 * experts; ++e) weights.emplace_back(type, inner, hidden, static_cast<uint32_t>(e));
    Numbers n(13);
    const HostTensor x = matrix(n, tokens, hidden), logits = matrix(n, tokens, experts);
    const auto run_rows = [&](int64_t begin, int64_t count) {
      GraphBuilder g("test");
      std::vector<Value> all;
      for (const auto& w : weights) all.push_back(g.weight(fmt::format("w{}", all.size()), {w.view(), {}, {}}));
      const Routing r = moe_router(g, g.input("logits", DType::kF32, {Dim(Symbol::kTokens), Dim(experts)}), {},
                                   {.num_experts = experts, .experts_per_token = 2});
      const Value y = expert_gated_linear(g, g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(hidden)}), r,
                                          {std::span(all).first(static_cast<size_t>(experts)), {}},
                                          {std::span(all).last(static_cast<size_t>(experts)), {}}, {});
      g.output("y",
               expert_sum(
                   g,
                   expert_linear(
                       g, y, r,
                       {std::vector<Value>(static_cast<size_t>(experts), g.weight("down", n.weight({5, inner}))), {}}),
                   r.weights));
      const auto part = [&](const HostTensor& t) {
        return HostTensor{{count, t.cols()}, {t.row(begin), t.row(begin) + count * t.cols()}};
      };
      CpuCompileOptions o = options();
      o.batch_invariance = BatchInvariance::kAlways;
      return run_experts(g, {{"x", part(x)}, {"logits", part(logits)}}, count, 5, o);
    };
    n = Numbers(17);
    const std::vector<float> whole = run_rows(0, tokens);
    for (const auto& [begin, count] : {std::pair<int64_t, int64_t>{0, 1}, {7, 1}, {3, 16}, {20, 3}}) {
      n = Numbers(17);
      const std::vector<float> part = run_rows(begin, count);
      EXPECT_EQ(part, std::vector<float>(whole.begin() + begin * 5, whole.begin() + (begin + count) * 5))
          << dtype_info(type).name << ", rows from " << begin;
    }
  }
}

REDLINE_INSTANTIATE_PER_ISA(ExpertsPerIsa);

// The weights of experts that no token has chosen are NaN: none may be read. On any number of workers, several steps.
TEST(Experts, AnExpertWithoutTokensIsNotRead) {
  const Block b = {6, 2, 20, 24};
  for (const int workers : {1, 2, 5}) {
    Numbers n(3);
    GraphBuilder g("test");
    build_block(g, n, b);
    auto finished = g.finish();
    ASSERT_TRUE(finished.ok());
    Graph graph = std::move(finished).value();
    std::vector<float> poison(static_cast<size_t>(b.hidden * b.inner), NAN);
    for (ValueInfo& value : graph.values)
      if (value.kind == ValueKind::kWeight && (value.name.ends_with("0") || value.name.ends_with("4")))
        value.weight.view.data = poison.data();
    Compiled c = Compiled::make(std::move(graph), workers, sizes(20));
    for (const int64_t tokens : {1, 20, 0, 7}) {
      auto in = experts_inputs_of(b, n, tokens);
      for (int64_t t = 0; t < tokens; ++t) in["logits"].row(t)[0] = in["logits"].row(t)[4] = -100;
      for (const auto& [name, tensor] : in) c.put(name.c_str(), tensor);
      StepContext step;
      step.sizes = sizes(tokens);
      ASSERT_TRUE(c.executor->step(step).ok());
      for (const float y : c.get("y", tokens * b.hidden)) EXPECT_TRUE(std::isfinite(y));
    }
  }
}

TEST(Experts, MatricesThatDifferAreRefused) {
  Numbers n;
  GraphBuilder g("test");
  const Dim T = Symbol::kTokens;
  const Routing r =
      moe_router(g, g.input("logits", DType::kF32, {T, Dim(2)}), {}, {.num_experts = 2, .experts_per_token = 1});
  const Value two[] = {g.weight("a", n.weight({3, 4})), g.weight("b", n.weight({5, 4}))};
  expert_linear(g, g.input("x", DType::kF32, {T, Dim(4)}), r, {two, {}});
  EXPECT_EQ(g.finish().status().message(),
            "expert_linear: b is f32 [5, 4], a is f32 [3, 4]: experts must have one shape and type");
}

}  // namespace
}  // namespace redline::test
