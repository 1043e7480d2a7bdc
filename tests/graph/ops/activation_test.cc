#include "graph/ops/activation.h"

#include "support/op_formula.h"
#include "support/prepared.h"

namespace redline::test {
namespace {

constexpr Activation kKinds[] = {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kQuickGelu,
                                 Activation::kRelu, Activation::kTanh, Activation::kTanh3};
const std::vector<int64_t> kActivationRows = {0, 1, 2, 5, 37};
// Arguments are of about unit size: a dozen roundings of results no larger than the largest (tests/kernels has the
// bounds).
constexpr double kActivationTolerance = 12 * 6e-8;

// tensor/activation.h
double f(Activation kind, double x) {
  switch (kind) {
    case Activation::kSilu: return x / (1 + std::exp(-x));
    case Activation::kGelu: return x * (1 + std::erf(x / std::sqrt(2.0))) / 2;
    case Activation::kGeluTanh: return x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * std::pow(x, 3)))) / 2;
    case Activation::kQuickGelu: return x / (1 + std::exp(-1.702 * x));
    case Activation::kRelu: return x > 0 ? x : 0;
    case Activation::kTanh: return std::tanh(x);
    case Activation::kTanh3: return 3 * std::tanh(x / 3);
  }
  return NAN;
}

Value input(GraphBuilder& g, const char* name, int64_t cols) {
  return g.input(name, DType::kF32, {Dim(Symbol::kTokens), Dim(cols)});
}

}  // namespace

TEST(ActivationOp, EqualsTheFormula) {
  for (Activation kind : kKinds)
    for (int64_t cols : {1, 97})
      expect_formula([&](GraphBuilder& g, Numbers&) { g.output("y", activation(g, input(g, "x", cols), kind)); },
                     [&](Numbers& n, int64_t rows) {
                       return std::map<std::string, HostTensor>{{"x", matrix(n, rows, cols)}};
                     },
                     each([=](const FormulaInputs& in, int64_t r, int64_t c) { return f(kind, in("x", r, c)); }),
                     kActivationRows, kActivationTolerance);
}

TEST(GatedActivationOp, EqualsTheFormulaOfTwoValuesAndOfHalves) {
  for (Activation kind : {Activation::kGelu, Activation::kSilu}) {
    expect_formula(
        [&](GraphBuilder& g, Numbers&) {
          const Value gate = input(g, "gate", 70);
          g.output("y", gated_activation(g, gate, input(g, "up", 70), kind));
        },
        [](Numbers& n, int64_t rows) {
          return std::map<std::string, HostTensor>{{"gate", matrix(n, rows, 70)}, {"up", matrix(n, rows, 70)}};
        },
        each([=](const FormulaInputs& in, int64_t r, int64_t c) { return f(kind, in("gate", r, c)) * in("up", r, c); }),
        kActivationRows, kActivationTolerance);
    expect_formula([&](GraphBuilder& g, Numbers&) { g.output("y", gated_activation(g, input(g, "x", 82), {}, kind)); },
                   [](Numbers& n, int64_t rows) {
                     return std::map<std::string, HostTensor>{{"x", matrix(n, rows, 82)}};
                   },
                   each([=](const FormulaInputs& in, int64_t r, int64_t c) {
                     return f(kind, in("x", r, c + 41)) * in("x", r, c);
                   }),
                   kActivationRows, kActivationTolerance);
  }
}

TEST(GatedActivationOp, TheSecondHalfIsTheGate) {
  GraphBuilder g("test");
  g.output("y", gated_activation(g, input(g, "x", 4), {}, Activation::kRelu));
  auto interpreter = Interpreter::make(std::move(g.finish()).value());
  EXPECT_EQ(interpreter->run({{"x", {{1, 4}, {2, -3, -5, 7}}}}, sizes(1))->at("y").data, (std::vector<double>{0, -21}));
}

TEST(ActivationOps, StoreWhatProductsRead) {
  std::vector<SymbolValues> steps;
  for (int64_t rows : kActivationRows) steps.push_back(sizes(rows));
  for (int kind = 0; kind < 3; ++kind)
    expect_prepares(
        [&](GraphBuilder& g, Numbers&) {
          if (kind == 0) return activation(g, input(g, "x", 352), Activation::kGeluTanh);
          if (kind == 1) return gated_activation(g, input(g, "x", 2 * 352), {}, Activation::kGelu);
          const Value gate = input(g, "x", 352);
          return gated_activation(g, gate, input(g, "up", 352), Activation::kSilu);
        },
        [&](Numbers& n, const SymbolValues& now) {
          std::map<std::string, HostTensor> in = {{"x", matrix(n, now[Symbol::kTokens], kind == 1 ? 704 : 352)}};
          if (kind == 2) in["up"] = matrix(n, now[Symbol::kTokens], 352);
          return in;
        },
        steps);
}

TEST(ActivationOps, NamesOfConfigs) {
  EXPECT_EQ(activation_from_name("gelu-approximate").value(), Activation::kGeluTanh);
  EXPECT_EQ(activation_from_name("quick_gelu").value(), Activation::kQuickGelu);
  for (Activation kind : kKinds) EXPECT_EQ(activation_from_name(activation_name(kind)).value(), kind);
  const Status status = activation_from_name("mish").status();
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_EQ(status.message(),
            "activation mish is not known (the nearest is swish); known are silu, swish, gelu, gelu_tanh, gelu_new, "
            "gelu_pytorch_tanh, gelu-approximate, quick_gelu, relu, tanh, tanh3");
}

TEST(ActivationOps, WhatDoesNotFitIsRefused) {
  GraphBuilder g("test");
  gated_activation(g, input(g, "x", 5), {}, Activation::kGelu);
  EXPECT_EQ(g.finish().status().message(), "gated_activation: [tokens, 5] has no two halves");
  GraphBuilder h("test");
  const Value gate = input(h, "x", 5);
  gated_activation(h, gate, input(h, "up", 6), Activation::kGelu);
  EXPECT_EQ(h.finish().status().message(), "gated_activation: gate is [tokens, 5], up is [tokens, 6]");
}

}  // namespace redline::test
