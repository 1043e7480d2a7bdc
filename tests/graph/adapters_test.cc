// Adapters as epilogues of linear ops and convolutions. The references are float64 loops of this file; for
// convolutions, whose op test covers the reference of the op, the interpreter.
#include "graph/adapters.h"

#include "graph/adapter_sites.h"
#include "graph/ops/activation.h"
#include "graph/ops/add.h"
#include "graph/ops/conv2d.h"
#include "graph/ops/gated_add.h"
#include "graph/ops/gated_linear.h"
#include "graph/ops/linear.h"
#include "graph/ops/silu_mul.h"
#include "graph/pass.h"
#include "runtime/executable.h"
#include "support/adapters.h"
#include "support/image_sizes.h"
#include "support/random_weight.h"

namespace redline::test {
namespace {

const Dim kTokens = Symbol::kTokens;
const auto kAll = [](const std::string&) { return true; };

/// A graph with sites, compiled for an instruction set.
struct Adapted {
  CpuKernels kernels;
  std::unique_ptr<RuntimeResources> runtime;
  AdapterSites sites;
  Executable network;

  /// max_rank 0: without sites.
  Adapted(Graph graph, std::string_view isa, int workers, const SymbolValues& bounds, bool exact, int64_t max_rank)
      : kernels(cpu_kernels_for(isa).value()), runtime(std::make_unique<RuntimeResources>(workers, kernels)) {
    if (max_rank > 0) sites = add_adapter_sites(graph, max_rank, kAll);
    ExecutableOptions options;
    options.exact_f32 = exact;
    options.bounds = bounds;
    auto made = Executable::make(std::move(graph), options, *runtime);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    network = std::move(made).value();
  }
  std::vector<float> run(const std::map<std::string, HostTensor>& inputs, const SymbolValues& now,
                         std::span<const AdapterSegment> segments = {}) {
    for (const auto& [name, tensor] : inputs)
      std::transform(tensor.data.begin(), tensor.data.end(), network.input(name), [](double v) { return float(v); });
    const Status done = network.run(now, segments);
    EXPECT_TRUE(done.ok()) << done.to_string();
    const float* y = network.output("y");
    return {y, y + num_elements(network.outputs()[0].shape).eval(now)};
  }
  /// Stages that compute ops of this kind.
  int count(std::string_view op) const {
    return static_cast<int>(std::count_if(network.program()->stages.begin(), network.program()->stages.end(),
                                          [&](const StagePlan& s) { return s.op == op; }));
  }
};

HostTensor rounded_to_f32(HostTensor t) {
  for (double& v : t.data) v = static_cast<float>(v);
  return t;
}

void expect_near(const std::vector<float>& got, const HostTensor& want, double tolerance) {
  ASSERT_EQ(got.size(), want.data.size());
  double most = 0, error = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    most = std::max(most, std::abs(want.data[i]));
    error = std::max(error, std::abs(double{got[i]} - want.data[i]));
    ASSERT_FALSE(std::isnan(got[i])) << i;
  }
  EXPECT_LE(error, tolerance * most);
}

/// x rounded once per product: not at all; to 2^-9 of each; to 1/254 of the largest of a group or a row, 0.6 % of a
/// normal row, and the largest of the results is 2.5 times as large as most for up to 4.5 deviations. x down^T is
/// rounded again.
double tolerance(DType type, bool exact) {
  return exact ? 1e-5 : type == DType::kBF16 || type == DType::kF32 ? 1.5e-2 : 2.5e-2;
}

HostTensor product(const HostTensor& x, const testing::RandomWeight& w, const std::vector<float>& bias) {
  HostTensor y = {{x.rows(), w.n}, std::vector<double>(static_cast<size_t>(x.rows() * w.n))};
  for (int64_t m = 0; m < x.rows(); ++m)
    for (int64_t n = 0; n < w.n; ++n) {
      double sum = bias.empty() ? 0 : double{bias[static_cast<size_t>(n)]};
      for (int64_t k = 0; k < w.k; ++k) sum += x.row(m)[k] * double{w.values[static_cast<size_t>(n * w.k + k)]};
      y.row(m)[n] = sum;
    }
  return y;
}

Value weight(GraphBuilder& g, const char* name, const testing::RandomWeight& w) {
  return g.weight(name, {.view = w.view(), .source_row = {}, .file = {}});
}
Value vector_of(GraphBuilder& g, const char* name, const std::vector<float>& values) {
  return g.weight(name, {.view = {DType::kF32, {std::ssize(values)}, values.data()}, .source_row = {}, .file = {}});
}

/// Segments over `rows` rows: of one row, of an odd number, empty, without adapters, and to the end.
struct Mix {
  std::vector<WeightedAdapter> first, both, last;
  std::vector<AdapterSegment> segments;

  Mix(const std::vector<RandomAdapter>& adapters, Symbol unit)
      : first{adapters[0].at(0.7f)}, both{adapters[1].at(-1.0f), adapters[0].at(2.0f)}, last{adapters[2].at(1.0f)},
        segments{{unit, 0, 1, first}, {unit, 1, 18, both}, {unit, 18, 18, last}, {unit, 20, 1000, last}} {}
  std::span<const WeightedAdapter> of(int64_t row) const {
    for (const AdapterSegment& s : segments)
      if (row >= s.row_begin && row < s.row_end) return s.adapters;
    return {};
  }
};

struct Case {
  std::string isa;
  DType type;
  bool exact;
  std::string name() const {
    std::string name = fmt::format("{}{}_on_{}", dtype_info(type).name, exact ? "_exact" : "", isa);
    std::replace(name.begin(), name.end(), '+', '_');
    return name;
  }
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name(); }
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& isa : isa_paths())
    for (const DType type : {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kW8A8})
      for (const bool exact : {true, false}) all.push_back({isa, type, exact});
  return all;
}
class AdapterEpilogue : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Paths, AdapterEpilogue, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name(); });

// Ranks 1, 8 and 17 in segments of every kind; several adapters of one row; one adapter for all rows; none.
TEST_P(AdapterEpilogue, OfALinearFollowsTheSegments) {
  const auto& [isa, type, exact] = GetParam();
  constexpr int64_t kIn = 96, kOut = 37, kMaxRows = 300;
  const testing::RandomWeight w(type, kOut, kIn, 1);
  for (const bool has_residual : {false, true}) {
    Numbers n;
    const std::vector<float> bias = n.vector(kOut);
    GraphBuilder g("test");
    const Value x = g.input("x", DType::kF32, {kTokens, Dim(kIn)});
    const Value y = linear(g, x, weight(g, "w", w), has_residual ? Value{} : vector_of(g, "b", bias));
    g.output("y", has_residual ? add(g, g.input("rest", DType::kF32, {kTokens, Dim(kOut)}), y) : y);
    const Graph graph = std::move(g.finish()).value();

    Adapted alone(graph, isa, 2, sizes(kMaxRows), exact, 0);
    std::vector<std::unique_ptr<Adapted>> adapted;
    for (const int workers : {1, 2, 5})
      adapted.push_back(std::make_unique<Adapted>(graph, isa, workers, sizes(kMaxRows), exact, 26));
    const AdapterSites& sites = adapted[0]->sites;
    ASSERT_EQ(sites.size(), 1u);
    EXPECT_EQ(sites[0]->weight, "w");
    EXPECT_EQ(adapted[0]->count("add"), 0) << "the residual is part of the product";
    EXPECT_EQ(adapted[0]->count("linear"), 1);
    const std::vector<RandomAdapter> adapters = {RandomAdapter::make(n, sites, {8}), RandomAdapter::make(n, sites, {1}),
                                                 RandomAdapter::make(n, sites, {17})};
    const Mix mix(adapters, Symbol::kTokens);
    const std::vector<AdapterSegment> whole = {{Symbol::kTokens, 0, INT64_MAX, mix.last}},
                                      other_unit = {{Symbol::kBatch, 0, INT64_MAX, mix.last}};
    for (const int64_t rows : {1, 2, 5, 16, 19, 41, 300})
      for (const auto* segments : {&mix.segments, &whole, &other_unit}) {
        SCOPED_TRACE(fmt::format("{} rows, {} segments", rows, segments->size()));
        std::map<std::string, HostTensor> in = {{"x", rounded_to_f32(matrix(n, rows, kIn))}};
        if (has_residual) in["rest"] = rounded_to_f32(matrix(n, rows, kOut));
        HostTensor want = product(in["x"], w, has_residual ? std::vector<float>{} : bias);
        const auto adapters_of = [&](int64_t row) {
          return segments == &mix.segments ? mix.of(row)
                 : segments == &whole      ? std::span<const WeightedAdapter>(mix.last)
                                           : std::span<const WeightedAdapter>();
        };
        for (int64_t m = 0; m < rows; ++m) {
          add_adapters(adapters_of(m), *sites[0], in["x"].row(m), want.row(m));
          for (int64_t i = 0; has_residual && i < kOut; ++i) want.row(m)[i] += in["rest"].row(m)[i];
        }
        const std::vector<float> got = adapted[0]->run(in, sizes(rows), *segments), plain = alone.run(in, sizes(rows));
        expect_near(got, want, tolerance(type, exact));
        for (size_t other : {1u, 2u})
          EXPECT_EQ(adapted[other]->run(in, sizes(rows), *segments), got) << "other workers";
        for (int64_t m = 0; m < rows; ++m) {
          if (!adapters_of(m).empty()) continue;
          EXPECT_EQ(std::memcmp(got.data() + m * kOut, plain.data() + m * kOut, kOut * sizeof(float)), 0)
              << "row " << m << " has no adapter";
        }
        EXPECT_EQ(adapted[0]->run(in, sizes(rows)), plain) << "an empty site changes nothing";
      }
  }
}

// In float32 the bits of a row do not depend on the other rows of the step, nor on their adapters.
TEST(Adapters, ARowDoesNotDependOnItsNeighbours) {
  constexpr int64_t kIn = 64, kOut = 50, kRows = 60;
  const testing::RandomWeight w(DType::kQ8_0, kOut, kIn, 1);
  for (const std::string& isa : isa_paths()) {
    Numbers n;
    GraphBuilder g("test");
    g.output("y", linear(g, g.input("x", DType::kF32, {kTokens, Dim(kIn)}), weight(g, "w", w)));
    Adapted a(std::move(g.finish()).value(), isa, 2, sizes(kRows), true, 26);
    const std::vector<RandomAdapter> adapters = {RandomAdapter::make(n, a.sites, {8}),
                                                 RandomAdapter::make(n, a.sites, {1}),
                                                 RandomAdapter::make(n, a.sites, {17})};
    const Mix mix(adapters, Symbol::kTokens);
    const HostTensor x = matrix(n, kRows, kIn);
    const std::vector<float> together = a.run({{"x", x}}, sizes(kRows), mix.segments);
    for (const auto& [begin, end] :
         {std::pair<int64_t, int64_t>{0, 1}, {1, 18}, {5, 7}, {18, 20}, {20, 60}, {59, 60}}) {
      const HostTensor part = {{end - begin, kIn}, {x.row(begin), x.row(begin) + (end - begin) * kIn}};
      const std::vector<AdapterSegment> segment = {{Symbol::kTokens, 0, end - begin, mix.of(begin)}};
      const std::vector<float> alone = a.run({{"x", part}}, sizes(end - begin), segment);
      EXPECT_EQ(std::memcmp(alone.data(), together.data() + begin * kOut, alone.size() * sizeof(float)), 0)
          << isa << ", rows from " << begin;
    }
  }
}

// An adapter for each row: workers share x down^T, and take from others what those have not begun.
TEST(Adapters, ManyOfABatchAreShared) {
  constexpr int64_t kIn = 256, kOut = 1152, kRows = 16, kRank = 16;
  const testing::RandomWeight w(DType::kQ4_0, kOut, kIn, 1);
  for (const std::string& isa : isa_paths()) {
    SCOPED_TRACE(isa);
    Numbers n;
    GraphBuilder g("test");
    g.output("y", linear(g, g.input("x", DType::kF32, {kTokens, Dim(kIn)}), weight(g, "w", w)));
    const Graph graph = std::move(g.finish()).value();
    Adapted one(graph, isa, 1, sizes(kRows), false, kRank), four(graph, isa, 4, sizes(kRows), false, kRank);
    std::vector<RandomAdapter> adapters;
    std::vector<WeightedAdapter> of_row;
    std::vector<AdapterSegment> segments;
    for (int i = 0; i < 3; ++i) adapters.push_back(RandomAdapter::make(n, one.sites, {kRank}));
    for (const RandomAdapter& adapter : adapters) of_row.push_back(adapter.at(1.0f));
    for (int64_t row = 0; row < kRows; ++row)
      segments.push_back({Symbol::kTokens, row, row + 1, {&of_row[static_cast<size_t>(row % 3)], 1}});
    const HostTensor x = rounded_to_f32(matrix(n, kRows, kIn));
    HostTensor want = product(x, w, {});
    for (int64_t row = 0; row < kRows; ++row)
      add_adapters(segments[static_cast<size_t>(row)].adapters, *one.sites[0], x.row(row), want.row(row));
    const std::vector<float> got = one.run({{"x", x}}, sizes(kRows), segments);
    expect_near(got, want, tolerance(DType::kQ4_0, false));
    EXPECT_EQ(four.run({{"x", x}}, sizes(kRows), segments), got) << "other workers";
  }
}

// 5 groups of 256 columns for 2 or 4 workers: the last is cut by rows, within segments too.
TEST(Adapters, OfAGatedLinearWhoseLastGroupIsCutByRows) {
  constexpr int64_t kIn = 256, kWide = 1280, kMaxRows = 19, kRank = 17;
  const testing::RandomWeight gate(DType::kQ4_0, kWide, kIn, 1), up(DType::kQ4_0, kWide, kIn, 2),
      down(DType::kQ4_0, 32, kWide, 3);
  for (const std::string& isa : isa_paths()) {
    Numbers n;
    GraphBuilder g("test");
    const Value x = g.input("x", DType::kF32, {kTokens, Dim(kIn)});
    const Value h = silu_mul(g, linear(g, x, weight(g, "gate", gate)), linear(g, x, weight(g, "up", up)));
    g.output("y", linear(g, h, weight(g, "down", down)));
    const Graph graph = std::move(g.finish()).value();
    Adapted one(graph, isa, 1, sizes(kMaxRows), false, 26), two(graph, isa, 2, sizes(kMaxRows), false, 26),
        four(graph, isa, 4, sizes(kMaxRows), false, 26);
    const std::vector<RandomAdapter> adapters = {RandomAdapter::make(n, one.sites, {8}),
                                                 RandomAdapter::make(n, one.sites, {1}),
                                                 RandomAdapter::make(n, one.sites, {kRank})};
    const Mix mix(adapters, Symbol::kTokens);
    for (const int64_t rows : {1, 2, 7, 19}) {
      SCOPED_TRACE(fmt::format("{}, {} rows", isa, rows));
      const std::map<std::string, HostTensor> in = {{"x", rounded_to_f32(matrix(n, rows, kIn))}};
      const std::vector<float> want = one.run(in, sizes(rows), mix.segments);
      EXPECT_EQ(two.run(in, sizes(rows), mix.segments), want);
      EXPECT_EQ(four.run(in, sizes(rows), mix.segments), want);
    }
  }
}

// y = rest + gate * (W x + adapters), gates and adapters by item; items begin within panels of 16 rows.
TEST_P(AdapterEpilogue, OfAGatedResidualFollowsTheItems) {
  const auto& [isa, type, exact] = GetParam();
  constexpr int64_t kWidth = 64;
  const testing::RandomWeight w(type, kWidth, kWidth, 1);
  GraphBuilder g("test");
  const Value x = g.input("x", DType::kF32, {kBatch * kImage, Dim(kWidth)});
  const Value rest = g.input("rest", DType::kF32, {kBatch * kImage, Dim(kWidth)});
  const Value table = g.input("table", DType::kF32, {kBatch, Dim(2 * kWidth)});
  g.output("y", gated_add(g, rest, linear(g, x, weight(g, "w", w)), table, kWidth, kImage));
  const Graph graph = std::move(g.finish()).value();
  const std::vector<SymbolValues> steps = {image_sizes(3, 19), image_sizes(2, 33), image_sizes(24, 1)};
  Adapted one(graph, isa, 1, bounds_of(steps), exact, 26), five(graph, isa, 5, bounds_of(steps), exact, 26);
  EXPECT_EQ(one.count("gated_add"), 0);
  Numbers n;
  const std::vector<RandomAdapter> adapters = {RandomAdapter::make(n, one.sites, {8}),
                                               RandomAdapter::make(n, one.sites, {1}),
                                               RandomAdapter::make(n, one.sites, {17})};
  const Mix mix(adapters, Symbol::kBatch);
  for (const SymbolValues& now : steps) {
    const int64_t batch = now[Symbol::kBatch], item_rows = now[Symbol::kImageTokens], rows = batch * item_rows;
    const std::map<std::string, HostTensor> in = {{"x", rounded_to_f32(matrix(n, rows, kWidth))},
                                                  {"rest", rounded_to_f32(matrix(n, rows, kWidth))},
                                                  {"table", rounded_to_f32(matrix(n, batch, 2 * kWidth))}};
    HostTensor want = product(in.at("x"), w, {});
    for (int64_t m = 0; m < rows; ++m) {
      add_adapters(mix.of(m / item_rows), *one.sites[0], in.at("x").row(m), want.row(m));
      for (int64_t i = 0; i < kWidth; ++i)
        want.row(m)[i] = in.at("rest").row(m)[i] + in.at("table").row(m / item_rows)[kWidth + i] * want.row(m)[i];
    }
    const std::vector<float> got = one.run(in, now, mix.segments);
    // The largest gate is 4 times as large as most.
    expect_near(got, want, 4 * tolerance(type, exact));
    EXPECT_EQ(five.run(in, now, mix.segments), got);
  }
}

double silu(double v) { return v / (1 + std::exp(-v)); }
double gelu(double v) { return 0.5 * v * (1 + std::erf(v / std::sqrt(2.0))); }

// A gated MLP, from two matrices and from the halves of one, and a product with an activation. The fused op has the
// sites of its matrices.
TEST_P(AdapterEpilogue, OfAGatedLinearComesBeforeTheActivation) {
  const auto& [isa, type, exact] = GetParam();
  constexpr int64_t kIn = 64, kWide = 352, kOut = 48, kMaxRows = 70;
  const testing::RandomWeight gate(type, kWide, kIn, 1), up(type, kWide, kIn, 2), both(type, 2 * kWide, kIn, 3),
      down(type, kOut, kWide, 4);
  enum Kind { kTwo, kHalves, kOne };
  for (const Kind kind : {kTwo, kHalves, kOne}) {
    Numbers n;
    const std::vector<float> bias = n.vector(2 * kWide);
    GraphBuilder g("test");
    const Value x = g.input("x", DType::kF32, {kTokens, Dim(kIn)});
    Value h;
    if (kind == kTwo) {
      const Value a = linear(g, x, weight(g, "gate", gate));
      h = silu_mul(g, a, linear(g, x, weight(g, "up", up)));
    } else if (kind == kHalves) {
      h = gated_activation(g, linear(g, x, weight(g, "both", both), vector_of(g, "bias", bias)), {}, Activation::kGelu);
    } else {
      h = activation(g, linear(g, x, weight(g, "gate", gate)), Activation::kGelu);
    }
    g.output("y", linear(g, h, weight(g, "down", down)));
    const Graph graph = std::move(g.finish()).value();
    Adapted plain(graph, isa, 2, sizes(kMaxRows), exact, 0), one(graph, isa, 1, sizes(kMaxRows), exact, 26),
        five(graph, isa, 5, sizes(kMaxRows), exact, 26);
    EXPECT_EQ(one.count(kind == kOne ? "activated_linear" : "gated_linear"), 1);
    EXPECT_EQ(one.count("linear"), 1);
    EXPECT_EQ(one.network.program()->stages.size(), plain.network.program()->stages.size());
    // The first adapter leaves out the last matrix, the second all but it.
    const AdapterSites& sites = one.sites;
    std::vector<int64_t> all_but_last(sites.size(), 8), only_last(sites.size(), 0);
    all_but_last.back() = 0;
    only_last.back() = 1;
    const std::vector<RandomAdapter> adapters = {RandomAdapter::make(n, sites, all_but_last),
                                                 RandomAdapter::make(n, sites, only_last),
                                                 RandomAdapter::make(n, sites, {17})};
    const Mix mix(adapters, Symbol::kTokens);
    for (const int64_t rows : {1, 3, 19, 40, 70}) {
      SCOPED_TRACE(fmt::format("kind {}, {} rows", static_cast<int>(kind), rows));
      const std::map<std::string, HostTensor> in = {{"x", rounded_to_f32(matrix(n, rows, kIn))}};
      const auto projected = [&](const testing::RandomWeight& w, const std::vector<float>& b, const HostTensor& from,
                                 size_t site) {
        HostTensor y = product(from, w, b);
        for (int64_t m = 0; m < rows; ++m) add_adapters(mix.of(m), *sites[site], from.row(m), y.row(m));
        return y;
      };
      HostTensor hidden =
          projected(kind == kHalves ? both : gate, kind == kHalves ? bias : std::vector<float>{}, in.at("x"), 0);
      if (kind == kTwo) {
        const HostTensor other = projected(up, {}, in.at("x"), 1);
        for (size_t i = 0; i < hidden.data.size(); ++i) hidden.data[i] = silu(hidden.data[i]) * other.data[i];
      } else if (kind == kHalves) {
        HostTensor half = {{rows, kWide}, {}};
        for (int64_t m = 0; m < rows; ++m)
          for (int64_t i = 0; i < kWide; ++i) half.data.push_back(gelu(hidden.row(m)[kWide + i]) * hidden.row(m)[i]);
        hidden = std::move(half);
      } else {
        for (double& v : hidden.data) v = gelu(v);
      }
      const HostTensor want = projected(down, {}, hidden, sites.size() - 1);
      const std::vector<float> got = one.run(in, sizes(rows), mix.segments);
      // Two products in a row; the second rounds what the first has made.
      expect_near(got, want, 2.5 * tolerance(type, exact));
      EXPECT_EQ(five.run(in, sizes(rows), mix.segments), got) << "other workers";
      const std::vector<float> alone = plain.run(in, sizes(rows));
      EXPECT_EQ(one.run(in, sizes(rows)), alone) << "empty sites change nothing";
      for (int64_t m = 18; m < std::min<int64_t>(20, rows); ++m)
        EXPECT_EQ(std::memcmp(got.data() + m * kOut, alone.data() + m * kOut, kOut * sizeof(float)), 0)
            << "row " << m << " has no adapter";
    }
  }
}

// Halves that share a row panel of 16 are not fused: factors are packed by panels.
TEST(Adapters, HalvesOfOneMatrixAreWholePanels) {
  auto table = cpu_kernels();
  ASSERT_TRUE(table.ok());
  for (const auto& [half, fuses] : {std::pair<int64_t, int>{40, 0}, {48, 1}}) {
    const testing::RandomWeight both(DType::kBF16, 2 * half, 64, 1);
    GraphBuilder g("test");
    const Value x = g.input("x", DType::kF32, {kTokens, Dim(64)});
    g.output("y", gated_activation(g, linear(g, x, weight(g, "both", both)), {}, Activation::kGelu));
    Graph graph = std::move(g.finish()).value();
    add_adapter_sites(graph, 4, kAll);
    ASSERT_TRUE(run_pass("fuse_gated_linear", graph, CpuTarget(**table, false, 1)).ok());
    EXPECT_EQ(count(graph, kGatedLinear), fuses);
  }
}

// The unit of a site follows from its rows.
TEST(Adapters, SitesCountTokensLogitRowsOrItems) {
  Numbers n;
  GraphBuilder g("test");
  const auto site = [&](const char* name, const Dim& rows) {
    return linear(g, g.input(std::string("x") + name, DType::kF32, {rows, Dim(8)}), g.weight(name, n.weight({4, 8})));
  };
  g.output("a", site("a", kTokens));
  g.output("b", site("b", Dim(Symbol::kLogitRows)));
  g.output("c", site("c", kBatch * (kImage + Dim(Symbol::kTextTokens))));
  g.output("d", site("d", kBatch));
  g.output("e", site("e", kTokens));
  Graph graph = std::move(g.finish()).value();
  const AdapterSites sites = add_adapter_sites(
      graph, 4, [](const std::string& name) { return name != "e"; }, 7);
  ASSERT_EQ(sites.size(), 4u);
  const Symbol units[] = {Symbol::kTokens, Symbol::kLogitRows, Symbol::kBatch, Symbol::kBatch};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(sites[i]->unit, units[i]);
    EXPECT_EQ(sites[i]->index, 7 + i);
  }
}

/// A convolution with all that one may have around it: norm, bias, bias of items, residual.
struct Convolution {
  int64_t in, out;
  Conv2dAttrs attrs;
  DType type;
  bool has_norm = false, has_residual = false;
};

Graph graph_of(const Convolution& c, Numbers& n, std::vector<uint8_t>& weight) {
  GraphBuilder g("test");
  const int64_t k = c.attrs.kernel;
  const bool halves = c.attrs.stride == 2;
  const Dim in_height = c.attrs.upsample ? kH2 : kH, in_width = c.attrs.upsample ? kW2 : kW;
  const Dim height = halves ? kH2 : kH, width = halves ? kW2 : kW;
  Value x = g.input("x", DType::kF32, {kBatch * in_height * in_width, Dim(c.in)});
  WeightSource source = n.weight({c.out, c.in, k, k}, 0.1f);
  if (c.type != DType::kF32) {
    const auto* plain = static_cast<const float*>(source.view.data);
    weight.resize(static_cast<size_t>(row_bytes(c.type, c.out * c.in * k * k)));
    round_row(c.type, plain, c.out * c.in * k * k, weight.data());
    source.view = {c.type, source.view.shape, weight.data()};
  }
  if (c.has_norm)
    x = group_norm(g, {x, in_height, in_width}, kBatch, g.weight("n", n.weight({c.in})),
                   g.weight("nb", n.weight({c.in})), {8, 1e-6f, true});
  const Value items = g.input("items", DType::kF32, {kBatch, Dim(c.out)});
  const Value y = conv2d(g, {x, in_height, in_width}, kBatch, g.weight("w", source), g.weight("b", n.weight({c.out})),
                         height, width, c.attrs, items)
                      .value;
  g.output("y", c.has_residual ? add(g, g.input("rest", DType::kF32, {kBatch * height * width, Dim(c.out)}), y) : y);
  return std::move(g.finish()).value();
}

// Convolutions by vectors, by patches and by tiles of image rows: items in one region and in many, columns shared among
// workers, image rows cut into blocks.
TEST(Adapters, OfAConvolutionFollowsTheItems) {
  const std::vector<Convolution> all = {{8, 20, {}, DType::kF32},
                                        {8, 20, {.stride = 2}, DType::kF32, false, true},
                                        {8, 20, {.upsample = true}, DType::kBF16},
                                        {32, 40, {.stride = 2}, DType::kBF16},
                                        {32, 40, {.upsample = true}, DType::kBF16, false, true},
                                        {64, 72, {}, DType::kBF16, true, true}};
  auto kernels = cpu_kernels();
  ASSERT_TRUE(kernels.ok());
  const auto picture = [](int64_t batch, int64_t height, int64_t width) {
    SymbolValues s;
    s[Symbol::kBatch] = batch;
    testing::set_image_size(s, height, width);
    return s;
  };
  const std::vector<SymbolValues> steps = {picture(1, 1, 1), picture(2, 3, 5), picture(1, 34, 47)};
  for (const Convolution& c : all) {
    const bool exact = c.type == DType::kF32;
    SCOPED_TRACE(fmt::format("{} channels, stride {}, {}", c.in, c.attrs.stride, dtype_info(c.type).name));
    Numbers n;
    std::vector<uint8_t> weight;
    Graph graph = graph_of(c, n, weight);
    Graph plain = graph;
    const AdapterSites sites = add_adapter_sites(graph, 24, kAll);
    ASSERT_EQ(sites.size(), 1u);
    ExecutableOptions options;
    options.exact_f32 = exact;
    options.bounds = bounds_of(steps);
    options.interpret = true;
    RuntimeResources runtime(1, *kernels.value());
    auto reference = Executable::make(graph, options, runtime);
    options.interpret = false;
    ASSERT_TRUE(run_passes(graph).ok() && run_passes(plain).ok());
    std::vector<std::unique_ptr<RuntimeResources>> runtimes;
    std::vector<Executable> networks;  // the last one without room for adapters
    for (const int workers : {1, 2, 5, 2}) {
      const bool last = networks.size() == 3;
      runtimes.push_back(std::make_unique<RuntimeResources>(workers, *kernels.value()));
      auto network = Executable::make(last ? plain : graph, options, *runtimes.back());
      ASSERT_TRUE(network.ok()) << network.status().message();
      networks.push_back(std::move(network).value());
    }
    const RandomAdapter first = RandomAdapter::make(n, sites, {8}, 0.1f),
                        second = RandomAdapter::make(n, sites, {3}, 0.1f);
    using Weights = std::vector<WeightedAdapter>;
    const Weights none, one = {first.at(0.7f)}, both = {first.at(-1.0f), second.at(2.0f)}, other = {second.at(1.0f)};
    const auto over = [](int64_t begin, int64_t end, const Weights& weights) {
      return AdapterSegment{Symbol::kBatch, begin, end, weights};
    };
    const std::vector<std::vector<AdapterSegment>> settings = {{},
                                                               {over(0, INT64_MAX, one)},
                                                               {over(0, INT64_MAX, both)},
                                                               {over(0, 1, other), over(1, 2, both)},
                                                               {over(1, 2, one)},
                                                               {over(0, INT64_MAX, none)}};
    for (const auto& segments : settings)
      for (const SymbolValues& now : steps) {
        std::map<std::string, std::vector<float>> in;
        for (const Executable::Port& port : reference->inputs())
          in[port.name] = n.vector(num_elements(port.shape).eval(now));
        const auto run = [&](Executable& network) {
          for (const auto& [name, values] : in) std::copy(values.begin(), values.end(), network.input(name));
          ASSERT_TRUE(network.run(now, segments).ok());
        };
        run(*reference);
        for (Executable& network : networks) run(network);
        const int64_t count = num_elements(reference->outputs()[0].shape).eval(now);
        double most = 0, error = 0;
        bool same_on_all = true, same_as_alone = true;
        for (int64_t i = 0; i < count; ++i) {
          const double expected = reference->output("y")[i];
          const float got = networks[0].output("y")[i];
          most = std::max(most, std::abs(expected));
          error = std::max(error, std::abs(got - expected));
          same_on_all &= got == networks[1].output("y")[i] && got == networks[2].output("y")[i];
          same_as_alone &= got == networks[3].output("y")[i];
        }
        // float32: 72 + 24 roundings. bfloat16: x, x down^T and, by the norm before, what it made, each to 2^-9.
        EXPECT_LE(error, most * (exact ? 1e-5 : 1.5e-2)) << segments.size() << " segments";
        EXPECT_TRUE(same_on_all) << segments.size() << " segments";
        const bool is_empty = segments.empty() || segments[0].adapters.empty();
        const bool is_beyond = !is_empty && segments[0].row_begin >= now[Symbol::kBatch];
        EXPECT_EQ(same_as_alone, is_empty || is_beyond);
      }
  }
}

}  // namespace
}  // namespace redline::test
