// Ops with a recurrent state, compiled: several sequences, prompts cut anywhere, every instruction set.
// over 600 lines: the CPU and tile devices share the formulas.
#include <optional>

#include "graph/check_program.h"
#include "graph/ops/add.h"
#include "graph/ops/causal_conv.h"
#include "graph/ops/gated_norm.h"
#include "graph/ops/gated_scan.h"
#include "graph/ops/linear.h"
#include "graph/ops/lstm.h"
#include "graph/ops/rms_norm.h"
#include "graph/ops/silu_mul.h"
#include "graph/pass.h"
#include "support/graph_harness.h"
#include "support/isa_test.h"
#include "support/random_weight.h"
#include "support/sequences.h"
#include "support/tile_harness.h"

namespace redline::test {
namespace {

/// Rows of each sequence in each step.
using RecurrenceSteps = std::vector<std::vector<int64_t>>;
/// By sequence: inputs by name, of all of its tokens.
using Tokens = std::vector<std::map<std::string, HostTensor>>;
/// By sequence: all rows of y.
using Outputs = std::vector<std::vector<double>>;

HostTensor rows_of(const HostTensor& x, int64_t begin, int64_t count) {
  return {{count, x.cols()}, {x.row(begin), x.row(begin) + count * x.cols()}};
}

/// The inputs of one step, rows of all sequences one after the other.
std::map<std::string, HostTensor> gather(const Tokens& tokens, const std::vector<int64_t>& rows,
                                         std::vector<int64_t>& done) {
  std::map<std::string, HostTensor> in;
  for (size_t s = 0; s < rows.size(); ++s) {
    for (const auto& [name, x] : tokens[s]) {
      const HostTensor part = rows_of(x, done[s], rows[s]);
      HostTensor& all = in[name];
      if (all.shape.empty()) all.shape = {0, x.cols()};
      all.shape[0] += rows[s];
      all.data.insert(all.data.end(), part.data.begin(), part.data.end());
    }
    done[s] += rows[s];
  }
  return in;
}

void scatter(const double* y, int64_t cols, const std::vector<int64_t>& rows, Outputs& outputs) {
  for (size_t s = 0; s < rows.size(); ++s) {
    outputs[s].insert(outputs[s].end(), y, y + rows[s] * cols);
    y += rows[s] * cols;
  }
}

SymbolValues bounds_of(const RecurrenceSteps& steps) {
  SymbolValues bounds = sizes(0);
  bounds[Symbol::kSequences] = std::ssize(steps[0]);
  for (const std::vector<int64_t>& step : steps) {
    int64_t rows = 0;
    for (const int64_t n : step) rows += n;
    bounds[Symbol::kTokens] = std::max(bounds[Symbol::kTokens], rows);
  }
  return bounds;
}

constexpr int64_t kPages = 40;

Outputs run_compiled(Graph graph, const Tokens& tokens, const RecurrenceSteps& steps, int64_t cols, int workers,
                     const CpuKernels* kernels, int64_t wave_tokens = kWaveGrain) {
  CpuCompileOptions options;
  options.kernels = kernels;
  options.wave_tokens = wave_tokens;
  Compiled compiled = Compiled::make(std::move(graph), workers, bounds_of(steps), options);
  TestSequences sequences(compiled.program->states,
                          compiled.executor->make_state_memory(std::vector<int64_t>{kPages}).value(), kPages,
                          tokens.size(), {});
  Outputs outputs(tokens.size());
  std::vector<int64_t> done(tokens.size());
  for (const std::vector<int64_t>& step : steps) {
    const StepContext context = sequences.begin(step);
    for (const auto& [name, x] : gather(tokens, step, done)) compiled.put(name.c_str(), x);
    EXPECT_TRUE(compiled.executor->step(context).ok());
    const std::vector<float> y = compiled.get("y", context.sizes[Symbol::kTokens] * cols);
    scatter(std::vector<double>(y.begin(), y.end()).data(), cols, step, outputs);
    sequences.commit();
  }
  return outputs;
}

Outputs run_reference(Graph graph, const Tokens& tokens, const RecurrenceSteps& steps, int64_t cols) {
  auto interpreter = Interpreter::make(std::move(graph));
  EXPECT_TRUE(interpreter.ok());
  auto runner = make_interpreter_runner(interpreter->graph(), bounds_of(steps));
  TestSequences sequences(interpreter->states(), (*runner)->make_state_memory(std::vector<int64_t>{kPages}).value(),
                          kPages, tokens.size(), {});
  Outputs outputs(tokens.size());
  std::vector<int64_t> done(tokens.size());
  for (const std::vector<int64_t>& step : steps) {
    const StepContext context = sequences.begin(step);
    auto y = interpreter->run(gather(tokens, step, done), context);
    EXPECT_TRUE(y.ok()) << y.status().to_string();
    if (!y.ok()) return outputs;
    scatter((*y)["y"].data.data(), cols, step, outputs);
    sequences.commit();
  }
  return outputs;
}

Outputs run_on_tiles(Graph graph, const Tokens& tokens, const RecurrenceSteps& steps, int64_t cols, bool persistent) {
  Outputs outputs(tokens.size());
  TileCompiled c = TileCompiled::make(graph, bounds_of(steps), {.persistent = persistent});
  EXPECT_TRUE(c.status.ok()) << c.status.to_string();
  if (!c.status.ok()) return outputs;
  TestSequences sequences(c.runner->states(), c.runner->make_state_memory(std::vector<int64_t>{kPages}).value(), kPages,
                          tokens.size(), {});
  std::vector<int64_t> done(tokens.size());
  for (const std::vector<int64_t>& step : steps) {
    const StepContext context = sequences.begin(step);
    for (const auto& [name, x] : gather(tokens, step, done)) put(*c.runner, graph, name, x);
    const Status status = c.runner->step(context);
    EXPECT_TRUE(status.ok()) << status.to_string();
    const std::vector<float> y = get(*c.runner, "y", context.sizes[Symbol::kTokens] * cols);
    scatter(std::vector<double>(y.begin(), y.end()).data(), cols, step, outputs);
    sequences.commit();
  }
  return outputs;
}

double error_of(const std::vector<double>& got, const std::vector<double>& want) {
  EXPECT_EQ(got.size(), want.size());
  double largest = 0, worst = 0;
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    if (!(std::abs(got[i] - want[i]) < INFINITY)) return INFINITY;
    largest = std::max(largest, std::abs(want[i]));
    worst = std::max(worst, std::abs(got[i] - want[i]));
  }
  return largest > 0 ? worst / largest : worst;
}

/// `total[s]` tokens of each sequence s in several ways: whole, token by token, and cut at random.
std::vector<RecurrenceSteps> cuts_of(const std::vector<int64_t>& total) {
  std::vector<RecurrenceSteps> cuts = {{total}};
  std::mt19937 random(5);
  for (const int64_t most : {1, 7, 50}) {
    RecurrenceSteps steps;
    std::vector<int64_t> left = total;
    while (*std::max_element(left.begin(), left.end()) > 0) {
      std::vector<int64_t>& step = steps.emplace_back();
      for (int64_t& n : left) {
        step.push_back(std::min(n, most == 1 ? 1 : static_cast<int64_t>(random() % static_cast<uint64_t>(most)) + 1));
        n -= step.back();
      }
    }
    cuts.push_back(steps);
  }
  return cuts;
}

struct Problem {
  std::function<Graph()> build;
  std::function<std::map<std::string, HostTensor>(Numbers&, int64_t rows)> inputs;
  std::function<std::vector<double>(const std::map<std::string, HostTensor>&)> formula;  ///< of one sequence
  int64_t cols;
  double tolerance;
};

/// Sequences of a problem, and what the formula says of each.
struct Expected {
  Tokens tokens;
  std::vector<std::vector<double>> want;

  Expected(const Problem& problem, const std::vector<int64_t>& total) {
    Numbers numbers(9);
    for (const int64_t n : total) {
      tokens.push_back(problem.inputs(numbers, n));
      want.push_back(problem.formula(tokens.back()));
    }
  }
};

void expect_formula(const Problem& problem, const std::vector<int64_t>& total, const CpuKernels* kernels,
                    const std::vector<int>& workers) {
  const auto [tokens, want] = Expected(problem, total);
  std::optional<Outputs> first;
  for (const RecurrenceSteps& steps : cuts_of(total)) {
    SCOPED_TRACE(fmt::format("{} steps", steps.size()));
    if (!kernels) {
      const Outputs reference = run_reference(problem.build(), tokens, steps, problem.cols);
      for (size_t s = 0; s < total.size(); ++s) EXPECT_LE(error_of(reference[s], want[s]), 1e-11) << "sequence " << s;
      continue;
    }
    for (const int count : workers) {
      const Outputs got = run_compiled(problem.build(), tokens, steps, problem.cols, count, kernels);
      for (size_t s = 0; s < total.size(); ++s)
        EXPECT_LE(error_of(got[s], want[s]), problem.tolerance) << "sequence " << s << ", " << count << " workers";
      if (!first) first = got;
      EXPECT_TRUE(got == *first) << count << " workers give other bits than the first run";
    }
  }
}

/// Values of weights that a graph reads; the problem keeps them.
struct RecurrenceWeights {
  std::map<std::string, std::vector<float>> values;
  Value add(GraphBuilder& g, const std::string& name, std::vector<int64_t> shape) const {
    WeightSource source;
    source.view = {DType::kF32, std::move(shape), values.at(name).data()};
    return g.weight(name, std::move(source));
  }
};

Value recurrent(GraphBuilder& g, int64_t elements) {
  StateAttrs state;
  state.kind = StateKind::kRecurrent;
  state.elements = elements;
  return g.state("state", state);
}

Problem conv_problem(int64_t channels, CausalConvAttrs a, bool has_bias) {
  auto weights = std::make_shared<RecurrenceWeights>();
  Numbers numbers(3);
  weights->values["w"] = numbers.vector(a.taps * channels);
  weights->values["b"] = numbers.vector(channels);
  Problem p;
  p.cols = channels;
  // A sum of taps products and a bias, and silu: 1.2e-7 and 4 roundings (activation_functions.h).
  p.tolerance = static_cast<double>(a.taps + 8) * kRounding;
  p.build = [=] {
    GraphBuilder g("test");
    const Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(channels)});
    g.output("y", causal_conv(g, x, weights->add(g, "w", {a.taps, channels}),
                              has_bias ? weights->add(g, "b", {channels}) : Value{},
                              recurrent(g, (a.taps - 1) * channels), a));
    return std::move(g.finish()).value();
  };
  p.inputs = [=](Numbers& n, int64_t rows) {
    return std::map<std::string, HostTensor>{{"x", matrix(n, rows, channels)}};
  };
  p.formula = [=](const std::map<std::string, HostTensor>& in) {
    const HostTensor& x = in.at("x");
    std::vector<double> y;
    for (int64_t t = 0; t < x.rows(); ++t)
      for (int64_t c = 0; c < channels; ++c) {
        double sum = has_bias ? weights->values["b"][static_cast<size_t>(c)] : 0;
        for (int64_t i = std::max<int64_t>(0, a.taps - 1 - t); i < a.taps; ++i)
          sum += weights->values["w"][static_cast<size_t>(i * channels + c)] * x.row(t - a.taps + 1 + i)[c];
        y.push_back(a.has_silu ? sum / (1 + std::exp(-sum)) : sum);
      }
    return y;
  };
  return p;
}

Problem scan_problem(const GatedScanAttrs& a) {
  auto weights = std::make_shared<RecurrenceWeights>();
  Numbers numbers(4);
  weights->values["decay"] = numbers.vector(a.num_heads);
  // From a long memory to one that forgets at once.
  for (size_t h = 0; h < weights->values["decay"].size(); ++h)
    weights->values["decay"][h] = -0.01f * std::pow(8.0f, static_cast<float>(h % 5));
  weights->values["bias"] = numbers.vector(a.num_heads);
  weights->values["skip"] = numbers.vector(a.num_heads);
  Problem p;
  p.cols = a.num_heads * a.value_dim;
  // A row's products with S and k have key_dim terms, its sums over tokens two times a chunk; what S itself is off by
  // does not grow, for no step lengthens it. The values in the sums are of about the size of the largest result.
  p.tolerance = static_cast<double>(a.key_dim + 2 * kScanChunkTokens) * kRounding;
  p.build = [=] {
    GraphBuilder g("test");
    const Dim T = Symbol::kTokens;
    GatedScanInputs in;
    in.x = g.input("x", DType::kF32, {T, Dim(a.columns())});
    in.step = g.input("step", DType::kF32, {T, Dim(a.num_heads)});
    in.decay = weights->add(g, "decay", {a.num_heads});
    in.bias = weights->add(g, "bias", {a.num_heads});
    if (a.is_delta) in.beta = g.input("beta", DType::kF32, {T, Dim(a.num_heads)});
    else in.skip = weights->add(g, "skip", {a.num_heads});
    in.state = recurrent(g, a.state_elements());
    g.output("y", gated_scan(g, in, a));
    return std::move(g.finish()).value();
  };
  p.inputs = [=](Numbers& n, int64_t rows) {
    std::map<std::string, HostTensor> in = {{"x", matrix(n, rows, a.columns())},
                                            {"step", matrix(n, rows, a.num_heads)}};
    if (a.is_delta) in["beta"] = matrix(n, rows, a.num_heads);
    return in;
  };
  p.formula = [=](const std::map<std::string, HostTensor>& in) {
    const HostTensor &x = in.at("x"), &steps = in.at("step");
    const int64_t n = a.key_dim, size = a.value_dim, keys = a.num_groups * n, values = a.num_heads * size;
    std::vector<std::vector<double>> S(static_cast<size_t>(a.num_heads),
                                       std::vector<double>(static_cast<size_t>(n * size)));
    std::vector<double> y;
    for (int64_t t = 0; t < x.rows(); ++t)
      for (int64_t h = 0; h < a.num_heads; ++h) {
        const auto head = static_cast<size_t>(h);
        const int64_t group = a.groups_alternate ? h % a.num_groups : h * a.num_groups / a.num_heads;
        const double* q = x.row(t) + (a.is_delta ? 0 : values + keys) + group * n;
        const double* k = x.row(t) + (a.is_delta ? keys : values) + group * n;
        const double* v = x.row(t) + (a.is_delta ? 2 * keys : 0) + h * size;
        double step = std::log1p(std::exp(steps.row(t)[h] + weights->values["bias"][head]));
        step = std::clamp<double>(step, a.step_min, a.step_max);
        const double kept = std::exp(weights->values["decay"][head] * step);
        double query = 1, key = 1;
        if (a.is_delta) {
          double qq = 0, kk = 0;
          for (int64_t i = 0; i < n; ++i) qq += q[i] * q[i], kk += k[i] * k[i];
          query = 1 / std::sqrt(qq + 1e-6) / std::sqrt(static_cast<double>(n));
          key = 1 / std::sqrt(kk + 1e-6);
        }
        const auto at = [&](int64_t i, int64_t j) -> double& { return S[head][static_cast<size_t>(i * size + j)]; };
        for (int64_t j = 0; j < size; ++j) {
          double u = step * v[j];
          if (a.is_delta) {
            double known = 0;
            for (int64_t i = 0; i < n; ++i) known += kept * at(i, j) * k[i] * key;
            u = (v[j] - known) / (1 + std::exp(-in.at("beta").row(t)[h]));
          }
          double sum = a.is_delta ? 0 : weights->values["skip"][head] * v[j];
          for (int64_t i = 0; i < n; ++i) {
            at(i, j) = kept * at(i, j) + k[i] * key * u;
            sum += at(i, j) * q[i] * query;
          }
          y.push_back(sum);
        }
      }
    return y;
  };
  return p;
}

struct LstmShape {
  int64_t columns, hidden;
  std::vector<int64_t> dilation;
  bool has_bias;
};

Problem lstm_problem(const LstmShape& shape) {
  const int64_t layers = std::ssize(shape.dilation), hidden = shape.hidden;
  auto weights = std::make_shared<RecurrenceWeights>();
  Numbers numbers(6);
  const auto in_size = [=](int64_t l) { return l == 0 ? shape.columns : hidden; };
  const auto name = [](const char* kind, int64_t l) { return fmt::format("{}{}", kind, l); };
  for (int64_t l = 0; l < layers; ++l) {
    const auto size = [](int64_t k) { return static_cast<float>(1 / std::sqrt(static_cast<double>(k))); };
    weights->values[name("ih", l)] = numbers.vector(4 * hidden * in_size(l), 2 * size(in_size(l)));
    weights->values[name("hh", l)] = numbers.vector(4 * hidden * hidden, size(hidden));
    weights->values[name("bih", l)] = numbers.vector(4 * hidden, 0.3f);
    weights->values[name("bhh", l)] = numbers.vector(4 * hidden, 0.3f);
  }
  Problem p;
  p.cols = hidden;
  // A gate is off by (columns + hidden) e of what its sum consists of, and its function by 16 e. Gates are below 1, so
  // c forgets its errors as it forgets values: about as many times as it adds them up, a layer does so once more.
  p.tolerance = 4 * static_cast<double>((std::max(shape.columns, hidden) + hidden + 16) * layers) * kRounding;
  p.build = [=] {
    GraphBuilder g("test");
    const Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(shape.columns)});
    std::vector<LstmLayer> of_layers;
    for (int64_t l = 0; l < layers; ++l) {
      LstmLayer layer = {.weight_ih = weights->add(g, name("ih", l), {4 * hidden, in_size(l)}),
                         .weight_hh = weights->add(g, name("hh", l), {4 * hidden, hidden}),
                         .bias_ih = {},
                         .bias_hh = {}};
      if (shape.has_bias) {
        layer.bias_ih = weights->add(g, name("bih", l), {4 * hidden});
        layer.bias_hh = weights->add(g, name("bhh", l), {4 * hidden});
      }
      of_layers.push_back(layer);
    }
    const LstmAttrs attrs = {.hidden_size = hidden, .dilation = shape.dilation, .has_bias = shape.has_bias};
    g.output("y", lstm(g, x, of_layers, recurrent(g, attrs.state_elements()), attrs));
    return std::move(g.finish()).value();
  };
  p.inputs = [=](Numbers& n, int64_t rows) {
    return std::map<std::string, HostTensor>{{"x", matrix(n, rows, shape.columns)}};
  };
  // Layer by layer, over all tokens of the sequence.
  p.formula = [=](const std::map<std::string, HostTensor>& in) {
    const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
    HostTensor x = in.at("x");
    for (int64_t l = 0; l < layers; ++l) {
      const int64_t back = shape.dilation[static_cast<size_t>(l)];
      const auto value = [&](const char* kind, int64_t i) {
        return double{weights->values[name(kind, l)][static_cast<size_t>(i)]};
      };
      HostTensor h = {{x.rows(), hidden}, std::vector<double>(static_cast<size_t>(x.rows() * hidden))}, c = h;
      for (int64_t t = 0; t < x.rows(); ++t)
        for (int64_t j = 0; j < hidden; ++j) {
          double gates[4];
          for (int64_t gate = 0; gate < 4; ++gate) {
            const int64_t row = gate * hidden + j;
            double sum = shape.has_bias ? value("bih", row) + value("bhh", row) : 0;
            for (int64_t k = 0; k < x.cols(); ++k) sum += value("ih", row * x.cols() + k) * x.row(t)[k];
            for (int64_t k = 0; k < hidden && t >= back; ++k) sum += value("hh", row * hidden + k) * h.row(t - back)[k];
            gates[gate] = sum;
          }
          const double before = t >= back ? c.row(t - back)[j] : 0;
          c.row(t)[j] = sigmoid(gates[1]) * before + sigmoid(gates[0]) * std::tanh(gates[2]);
          h.row(t)[j] = sigmoid(gates[3]) * std::tanh(c.row(t)[j]);
        }
      x = h;
    }
    return x.data;
  };
  return p;
}

const std::vector<LstmShape> kLstms = {
    {1, 1, {1}, true}, {17, 13, {1, 1, 1}, true}, {16, 16, {1, 2, 4}, false}, {5, 31, {3, 40}, true}};

const std::vector<GatedScanAttrs> kScans = {
    {false, 1, 1, 1, 1},
    {false, 6, 2, 17, 13, 0.2f, 0.9f},
    {false, 3, 1, 16, 64},
    {true, 1, 1, 1, 1},
    {true, 6, 3, 15, 33},
    {true, 4, 2, 32, 20},
    {true, 6, 2, 12, 7, 0, 2, true},
};
/// By sequence: around a chunk, a prime, and one that is not there at all.
const std::vector<std::vector<int64_t>> kLengths = {
    {1, kScanChunkTokens - 1, kScanChunkTokens, kScanChunkTokens + 1}, {97}, {40, 1, 71, 0}};

TEST(RecurrenceReference, ScansEqualTheFormula) {
  for (const GatedScanAttrs& a : kScans)
    for (const auto& total : kLengths) expect_formula(scan_problem(a), total, nullptr, {});
}

TEST(RecurrenceReference, ConvolutionsEqualTheFormula) {
  for (const int64_t taps : {2, 3, 4})
    for (const auto& total : kLengths)
      expect_formula(conv_problem(17, {taps, taps != 3}, taps != 2), total, nullptr, {});
}

TEST(RecurrenceReference, LstmsEqualTheFormula) {
  for (const LstmShape& shape : kLstms)
    for (const auto& total : kLengths) expect_formula(lstm_problem(shape), total, nullptr, {});
}

TEST(RecurrenceReference, LstmNamesWhatDoesNotFit) {
  Numbers numbers(2);
  const auto message = [&](int64_t rows, int64_t columns, int64_t elements, std::vector<int64_t> dilation) {
    GraphBuilder g("test");
    const Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(3)});
    const std::vector<LstmLayer> layers = {{.weight_ih = g.weight("ih", numbers.weight({rows, columns})),
                                            .weight_hh = g.weight("hh", numbers.weight({8, 2})),
                                            .bias_ih = {},
                                            .bias_hh = {}}};
    const Value y = lstm(g, x, layers, recurrent(g, elements),
                         {.hidden_size = 2, .dilation = std::move(dilation), .has_bias = false});
    g.output("y", y);
    return std::string(g.finish().status().message());
  };
  EXPECT_EQ(message(8, 3, 4, {1}), "");
  EXPECT_EQ(message(8, 4, 4, {1}), "lstm: weight_ih of layer 0 is [8, 4], expected [8, 3]");
  EXPECT_EQ(message(8, 3, 5, {1}), "lstm: state is not a recurrent state of 4 elements");
  EXPECT_EQ(message(8, 3, 4, {1, 1}), "lstm: 1 layers of 2 elements, dilations for 2");
  EXPECT_EQ(message(8, 3, 4, {0}), "lstm: a dilation of 0");
}

// On tile devices: more sequences than multiprocessors, by launches and in one, to the same bits however they are cut.
TEST(RecurrenceTiles, LayersEqualTheFormulaHoweverTheyAreCut) {
  const std::vector<int64_t> total = {9, 1, 0, 5, 4};
  const auto check = [&](const Problem& problem) {
    const auto [tokens, want] = Expected(problem, total);
    std::optional<Outputs> first;
    for (const RecurrenceSteps& steps : cuts_of(total)) {
      if (steps.size() > 4 && first) continue;  // token by token is like cut at random
      for (const bool persistent : {false, true}) {
        const Outputs got = run_on_tiles(problem.build(), tokens, steps, problem.cols, persistent);
        for (size_t s = 0; s < total.size(); ++s)
          EXPECT_LE(error_of(got[s], want[s]), problem.tolerance) << "sequence " << s;
        if (!first) first = got;
        EXPECT_TRUE(got == *first) << steps.size() << " steps give other bits than the first run";
      }
    }
  };
  for (const LstmShape& shape : kLstms) check(lstm_problem(shape));
  check(conv_problem(37, {4, true}, true));
  check(scan_problem({true, 4, 2, 8, 40}));
}

using RecurrencePerIsa = IsaTest;

TEST_P(RecurrencePerIsa, LstmsEqualTheFormulaHoweverTheyAreCut) {
  for (const LstmShape& shape : kLstms) {
    SCOPED_TRACE(fmt::format("{} layers of {}", shape.dilation.size(), shape.hidden));
    expect_formula(lstm_problem(shape), {kScanChunkTokens + 1, 1, 41, 0}, &kernels(), {1, 3});
  }
}

TEST_P(RecurrencePerIsa, ScansEqualTheFormulaHoweverTheyAreCut) {
  for (const GatedScanAttrs& a : kScans)
    for (const auto& total : kLengths) {
      SCOPED_TRACE(fmt::format("{} {} heads {} x {}, {} tokens", a.is_delta ? "delta" : "selective", a.num_heads,
                               a.key_dim, a.value_dim, total[0]));
      expect_formula(scan_problem(a), total, &kernels(), total.size() == 1 ? std::vector{1, 3} : std::vector{3});
    }
}

TEST_P(RecurrencePerIsa, ConvolutionsEqualTheFormulaHoweverTheyAreCut) {
  for (const int64_t taps : {2, 3, 4})
    for (const int64_t channels : {1, 97})
      for (const auto& total : kLengths)
        expect_formula(conv_problem(channels, {taps, taps != 3}, taps != 2), total, &kernels(), {3});
}

// The sizes of Mamba-2 2.7B and Qwen3-Next, fewer heads.
TEST_P(RecurrencePerIsa, RealSizes) {
  expect_formula(scan_problem({false, 4, 1, 128, 64}), {131}, &kernels(), {2});
  expect_formula(scan_problem({true, 4, 2, 128, 128}), {131}, &kernels(), {2});
}
REDLINE_INSTANTIATE_PER_ISA(RecurrencePerIsa);

/// Layers as models have them: a mixer of norm, products, convolution, scan and gated norm, and a gated MLP.
class MixerStack {
 public:
  static constexpr int64_t kHidden = 64, kLayers = 3;
  static constexpr GatedScanAttrs kAttrs = {.num_heads = 4, .num_groups = 2, .key_dim = 16, .value_dim = 32};
  explicit MixerStack(DType type) : type_(type) {}
  Graph build() {
    kept_.clear();
    numbers_ = Numbers(8);
    number_ = 0;
    GraphBuilder g("test");
    Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(kHidden)});
    for (int64_t l = 0; l < kLayers; ++l) x = layer(g, x);
    g.output("y", x);
    Graph graph = std::move(g.finish()).value();
    EXPECT_TRUE(run_passes(graph).ok());
    return graph;
  }

 private:
  Value project(GraphBuilder& g, Value x, int64_t rows) {
    kept_.emplace_back(type_, rows, g.info(x).shape[1].constant(), static_cast<uint32_t>(kept_.size()));
    return linear(g, x, g.weight(fmt::format("w{}", kept_.size()), {kept_.back().view(), {}, {}}));
  }
  Value vector(GraphBuilder& g, std::vector<int64_t> shape, float size) {
    return g.weight(fmt::format("v{}", number_++), numbers_.weight(std::move(shape), size));
  }
  Value norm(GraphBuilder& g, Value x) { return rms_norm(g, x, vector(g, {kHidden}, 1), {}); }
  Value state(GraphBuilder& g, int64_t elements) {
    StateAttrs attrs;
    attrs.kind = StateKind::kRecurrent;
    attrs.elements = elements;
    return g.state(fmt::format("s{}", number_++), attrs);
  }
  Value layer(GraphBuilder& g, Value x) {
    const int64_t values = kAttrs.num_heads * kAttrs.value_dim, columns = kAttrs.columns();
    const Value normed = norm(g, x);
    GatedScanInputs in;
    in.x = causal_conv(g, project(g, normed, columns), vector(g, {4, columns}, 0.5f), Value{}, state(g, 3 * columns),
                       {4, true});
    in.step = project(g, normed, kAttrs.num_heads);
    std::vector<float>& decay = decay_.emplace_back(static_cast<size_t>(kAttrs.num_heads), -0.05f);
    in.decay = g.weight(fmt::format("v{}", number_++), {{DType::kF32, {kAttrs.num_heads}, decay.data()}, {}, {}});
    in.bias = vector(g, {kAttrs.num_heads}, 1);
    in.skip = vector(g, {kAttrs.num_heads}, 1);
    in.state = state(g, kAttrs.state_elements());
    const Value y = gated_norm(g, gated_scan(g, in, kAttrs), project(g, normed, values), vector(g, {values}, 1),
                               {.group = values, .gates_first = true});
    const Value mixed = add(g, x, project(g, y, kHidden));
    const Value inner = norm(g, mixed);
    return add(g, mixed, project(g, silu_mul(g, project(g, inner, 128), project(g, inner, 128)), kHidden));
  }
  DType type_;
  std::list<testing::RandomWeight> kept_;
  Numbers numbers_{8};
  int number_ = 0;
  std::list<std::vector<float>> decay_;
};

TEST(Wavefront, LayersHaveTheBitsOfWholeStages) {
  const CpuKernels* kernels = cpu_kernels().value();
  const RecurrenceSteps steps = {{160, 3}, {1, 70}, {40, 1}, {0, 128}};
  Numbers numbers(9);
  Tokens tokens;
  for (const int64_t n : {201, 202}) tokens.push_back({{"x", matrix(numbers, n, MixerStack::kHidden)}});
  for (const DType type : testing::each_kind_of_weight()) {
    SCOPED_TRACE(std::string(dtype_info(type).name));
    MixerStack stack(type);
    const Outputs whole = run_compiled(stack.build(), tokens, steps, MixerStack::kHidden, 2, kernels, 0);
    for (const int workers : {1, 2, 5})
      EXPECT_TRUE(run_compiled(stack.build(), tokens, steps, MixerStack::kHidden, workers, kernels) == whole)
          << workers;
  }
}

TEST(Wavefront, IsThereWhereARecurrenceHasFewerTasksThanWorkers) {
  CpuCompileOptions options;
  options.kernels = cpu_kernels().value();
  MixerStack stack(DType::kF32);
  for (const int workers : {1, 4, 5})
    for (const int64_t tokens : {255, 256}) {
      const Compiled compiled = Compiled::make(stack.build(), workers, sizes(tokens), options);
      EXPECT_EQ(compiled.program->wavefront.has_value(), workers > MixerStack::kAttrs.num_heads && tokens == 256);
    }
}

TEST(Wavefront, EventsOrderWhatTasksOfLayersTouch) {
  CpuCompileOptions options;
  options.kernels = cpu_kernels().value();
  options.exact_f32 = true;
  options.wave_tokens = kWaveGrain;
  MixerStack stack(DType::kF32);
  for (const int workers : {1, 2, 7, 40})
    for (const bool reuse : {true, false}) {
      options.reuse_memory = reuse;
      const Compiled compiled = Compiled::make(stack.build(), workers, sizes(160), options);
      const Program& program = *compiled.program;
      ASSERT_TRUE(program.wavefront.has_value());
      for (const int64_t tokens : {1, 79, 80, 97, 160}) {
        const Status status = check_program(program, sizes(tokens));
        EXPECT_TRUE(status.ok()) << status.to_string();
      }
      // A task may come before one of an earlier stage.
      size_t early = 0;
      for (const std::vector<Task>& list : program.wavefront->tasks)
        for (size_t i = 1; i < list.size(); ++i) early += list[i].stage < list[i - 1].stage;
      EXPECT_GT(early, 0U);
    }
}

}  // namespace
}  // namespace redline::test
