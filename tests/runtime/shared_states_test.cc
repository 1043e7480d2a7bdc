// Cross attention: an encoder's executable leaves keys and values, a decoder's executable reads them.
#include "runtime/shared_states.h"

#include <gmock/gmock.h>

#include <cmath>

#include "graph/ops/add.h"
#include "graph/ops/attention.h"
#include "graph/ops/kv_append.h"
#include "support/graph_harness.h"
#include "support/sequences.h"

namespace redline::test {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kHeads = 4, kKvHeads = 2, kHeadDim = 20, kLayers = 2;
constexpr int64_t kQuery = kHeads * kHeadDim, kKeys = kKvHeads * kHeadDim;
const float kScale = 1 / std::sqrt(static_cast<float>(kHeadDim));

StateAttrs kv_state(KvFormat format, std::string group) {
  StateAttrs a;
  a.num_heads = kKvHeads, a.head_dim = kHeadDim, a.format = format, a.group = std::move(group);
  return a;
}
std::string layer_name(const char* what, int64_t layer) { return fmt::format("{}.{}", what, layer); }

/// Keys and values of two layers, which only the decoder reads, and attention over the first of them.
Graph encoder_graph(KvFormat format) {
  GraphBuilder g("encoder");
  const Dim tokens(Symbol::kTokens);
  const Value q = g.input("q", DType::kF32, {tokens, Dim(kQuery)});
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const Value k = g.input(layer_name("k", layer), DType::kF32, {tokens, Dim(kKeys)}),
                v = g.input(layer_name("v", layer), DType::kF32, {tokens, Dim(kKeys)});
    const Value appended = kv_append(g, k, v, g.state(layer_name("cross", layer), kv_state(format, "encoder")));
    if (layer == 0)
      g.output("y", attention(g, q, appended, {.num_heads = kHeads, .scale = kScale, .is_causal = false}));
  }
  return std::move(g.finish()).value();
}

/// Attention over the decoder's own tokens, and over both layers of the encoder: the second with what the first has
/// found, unless the layers are not `ordered`.
Graph decoder_graph(KvFormat format, const char* first_state = "cross.0", bool ordered = true) {
  GraphBuilder g("decoder");
  const Dim tokens(Symbol::kTokens);
  Value q = g.input("q", DType::kF32, {tokens, Dim(kQuery)});
  const Value k = g.input("k", DType::kF32, {tokens, Dim(kKeys)});
  const Value own = kv_append(g, k, k, g.state("self", kv_state(format, "")));
  g.output("self", attention(g, q, own, {.num_heads = kHeads, .scale = kScale}));
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const Value state = g.state(layer == 0 ? first_state : layer_name("cross", layer), kv_state(format, "encoder"));
    const Value y = attention(g, q, state, {.num_heads = kHeads, .scale = kScale, .is_causal = false});
    g.output(layer_name("y", layer), y);
    if (ordered) q = add(g, q, y);
  }
  return std::move(g.finish()).value();
}

/// Softmax attention of one query over all keys, in float64.
std::vector<double> attend(const double* q, const std::vector<std::vector<double>>& k,
                           const std::vector<std::vector<double>>& v) {
  std::vector<double> y(static_cast<size_t>(kQuery));
  for (int64_t head = 0; head < kHeads; ++head) {
    const int64_t at = head / (kHeads / kKvHeads) * kHeadDim;
    double total = 0;
    std::vector<double> weights;
    for (const std::vector<double>& key : k) {
      double dot = 0;
      for (int64_t d = 0; d < kHeadDim; ++d) dot += q[head * kHeadDim + d] * key[static_cast<size_t>(at + d)];
      weights.push_back(std::exp(dot * static_cast<double>(kScale)));
      total += weights.back();
    }
    for (size_t p = 0; p < v.size(); ++p)
      for (int64_t d = 0; d < kHeadDim; ++d)
        y[static_cast<size_t>(head * kHeadDim + d)] += weights[p] / total * v[p][static_cast<size_t>(at + d)];
  }
  return y;
}

using Rows = std::vector<std::vector<double>>;
struct Encoded {
  Rows k[kLayers], v[kLayers];
};

void put_input(Executable& e, const std::string& name, const HostTensor& t) {
  std::copy(t.data.begin(), t.data.end(), e.input(name));
}
void add_rows(Rows& rows, const HostTensor& t, int64_t first, int64_t count) {
  for (int64_t r = first; r < first + count; ++r) rows.emplace_back(t.row(r), t.row(r) + t.cols());
}
float round_as(KvFormat format, double x) {
  const auto value = static_cast<float>(x);
  return format == KvFormat::kF16 ? f16_to_f32(f32_to_f16(value)) : value;
}
/// Random numbers that the cache format holds exactly.
HostTensor exact_matrix(Numbers& numbers, int64_t rows, int64_t cols, KvFormat format) {
  HostTensor t = matrix(numbers, rows, cols);
  for (double& x : t.data) x = static_cast<double>(round_as(format, x));
  return t;
}

struct SharedCase {
  int threads = 1;
  bool interpret = false;
  KvFormat format = KvFormat::kF32;
};

class SharedStates : public ::testing::TestWithParam<SharedCase> {};

TEST_P(SharedStates, ADecoderReadsWhatAnEncoderHasLeft) {
  const SharedCase& c = GetParam();
  RuntimeResources runtime(c.threads, *cpu_kernels().value());
  const std::vector<int64_t> lengths = {37, 1, 300, 0};  // the last sequence has no encoder states
  ExecutableOptions options;
  options.interpret = c.interpret;
  options.bounds = sizes(400);
  options.bounds[Symbol::kSequences] = std::ssize(lengths);
  auto encoder = Executable::make(encoder_graph(c.format), options, runtime);
  auto decoder = Executable::make(decoder_graph(c.format), options, runtime);
  ASSERT_TRUE(encoder.ok() && decoder.ok()) << encoder.status().to_string() << decoder.status().to_string();
  const Executable* both[] = {&*encoder, &*decoder};
  auto group = find_shared_group(both, "encoder");
  ASSERT_TRUE(group.ok()) << group.status().to_string();
  ASSERT_EQ(*group, (std::vector<size_t>{0, 1}));

  constexpr int64_t kPages = 40;
  const auto shape_of = [&](const Executable& e) {
    return AttentionPlanShape{e.attention_limits(0), kHeads, kKvHeads, kHeadDim, 400, std::ssize(lengths)};
  };
  TestSequences encoded(encoder->states(), encoder->make_state_memory(std::vector<int64_t>{kPages}).value(), kPages,
                        lengths.size(), shape_of(*encoder));
  encoded.set_reach({.is_causal = false});
  // The decoder has no memory of its own for the encoder's group.
  TestSequences decoded(decoder->states(), decoder->make_state_memory(std::vector<int64_t>{kPages, 0}).value(), kPages,
                        lengths.size(), shape_of(*decoder));

  Numbers numbers(3);
  std::vector<Encoded> states(lengths.size());
  const int64_t all = 338;
  const HostTensor q = matrix(numbers, all, kQuery);
  put_input(*encoder, "q", q);
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const HostTensor k = exact_matrix(numbers, all, kKeys, c.format), v = exact_matrix(numbers, all, kKeys, c.format);
    put_input(*encoder, layer_name("k", layer), k), put_input(*encoder, layer_name("v", layer), v);
    for (int64_t s = 0, row = 0; s < std::ssize(lengths); row += lengths[static_cast<size_t>(s++)]) {
      add_rows(states[static_cast<size_t>(s)].k[layer], k, row, lengths[static_cast<size_t>(s)]);
      add_rows(states[static_cast<size_t>(s)].v[layer], v, row, lengths[static_cast<size_t>(s)]);
    }
  }
  const StepContext encoder_step = encoded.begin(lengths);
  ASSERT_TRUE(encoder->run(encoder_step).ok());
  encoded.commit();
  // Weighted means of normal values: some units of 2^-24 of numbers below 4, for sums over 300 positions.
  constexpr double kTolerance = 2e-5;
  for (size_t s = 0, row = 0; s < lengths.size(); ++s)
    for (int64_t i = 0; i < lengths[s]; ++i, ++row) {
      const std::vector<double> want = attend(q.row(static_cast<int64_t>(row)), states[s].k[0], states[s].v[0]);
      for (size_t e = 0; e < want.size(); ++e)
        ASSERT_NEAR(encoder->output("y")[row * want.size() + e], want[e], kTolerance) << s << " " << i;
    }

  std::vector<Rows> own(lengths.size());
  for (const std::vector<int64_t>& rows :
       {std::vector<int64_t>{3, 1, 5, 2}, {1, 0, 1, 1}, {0, 40, 70, 0}, {1, 1, 1, 1}}) {
    StepContext step = decoded.begin(rows);
    std::vector<const int32_t*> pages;
    std::vector<int64_t> known;
    for (size_t s = 0; s < rows.size(); ++s)
      if (rows[s] > 0) pages.push_back(encoded[s].pages(0)), known.push_back(lengths[s]);
    StateStep& cross = decoded.state((*group)[1]);
    cross = {.memory = encoded.pool().memory().pages((*group)[0]),
             .page_bytes = encoded.pool().group((*group)[0]).page_bytes,
             .pages = pages.data(),
             .lengths = known.data()};
    std::unique_ptr<AttentionPlan> plan;
    if (const AttentionPlanShape shape = shape_of(*decoder); shape.limits.partitions > 0) {
      plan = std::make_unique<AttentionPlan>(shape);
      plan->make(step.sequences, AttentionReach{.is_causal = false, .lengths = known});
      cross.attention = plan->work();
    }
    const int64_t n = step.sizes[Symbol::kTokens];
    const HostTensor queries = matrix(numbers, n, kQuery), keys = exact_matrix(numbers, n, kKeys, c.format);
    put_input(*decoder, "q", queries), put_input(*decoder, "k", keys);
    const Status status = decoder->run(step);
    ASSERT_TRUE(status.ok()) << status.to_string();
    decoded.commit();
    for (size_t s = 0, row = 0; s < rows.size(); ++s)
      for (int64_t i = 0; i < rows[s]; ++i, ++row) {
        const auto at = static_cast<int64_t>(row);
        add_rows(own[s], keys, at, 1);
        const auto expect = [&](const std::string& name, const std::vector<double>& want) {
          for (size_t e = 0; e < want.size(); ++e)
            ASSERT_NEAR(decoder->output(name)[row * want.size() + e], want[e], kTolerance)
                << name << ", sequence " << s << ", row " << i;
        };
        expect("self", attend(queries.row(at), own[s], own[s]));
        std::vector<double> query(queries.row(at), queries.row(at) + kQuery);
        for (int64_t layer = 0; layer < kLayers; ++layer) {
          const std::vector<double> want = attend(query.data(), states[s].k[layer], states[s].v[layer]);
          expect(layer_name("y", layer), want);
          for (size_t e = 0; e < want.size(); ++e) query[e] += want[e];
        }
      }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SharedStates,
                         ::testing::Values(SharedCase{1}, SharedCase{3}, SharedCase{1, true},
                                           SharedCase{2, false, KvFormat::kF16}),
                         [](const auto& info) {
                           return fmt::format("{}Threads{}{}", info.param.threads,
                                              info.param.interpret ? "Interpreted" : "",
                                              info.param.format == KvFormat::kF16 ? "F16" : "");
                         });

TEST(SharedGroup, GroupsThatDifferAreRefused) {
  RuntimeResources runtime(1, *cpu_kernels().value());
  ExecutableOptions options;
  options.bounds = sizes(8);
  const auto make = [&](Graph graph, bool interpret = false) {
    options.interpret = interpret;
    return std::move(Executable::make(std::move(graph), options, runtime)).value();
  };
  const Executable encoder = make(encoder_graph(KvFormat::kF32)), decoder = make(decoder_graph(KvFormat::kF32));
  const auto status = [&](const Executable& other, const char* name) {
    const Executable* both[] = {&encoder, &other};
    return find_shared_group(both, name).status();
  };
  EXPECT_TRUE(status(decoder, "encoder").ok());
  EXPECT_EQ(status(decoder, "images").code(), Code::not_found);
  EXPECT_THAT(status(decoder, "images").message(), HasSubstr("graph 1 of 2 has no state group \"images\""));
  EXPECT_EQ(status(decoder, "").code(), Code::not_found);
  EXPECT_THAT(
      status(make(decoder_graph(KvFormat::kF16)), "encoder").message(),
      HasSubstr("state 0 is cross.0 (2 heads of 20, 4 bytes each) in one graph, cross.0 (2 heads of 20, 2 bytes "
                "each) in another"));
  EXPECT_THAT(status(make(decoder_graph(KvFormat::kF32, "other")), "encoder").message(),
              HasSubstr("state 0 is cross.0 (2 heads of 20, 4 bytes each) in one graph, other (2 heads"));
  EXPECT_THAT(status(make(decoder_graph(KvFormat::kF32), true), "encoder").message(),
              HasSubstr("different devices or modes"));
}

// Partial results of the ops over one group lie in the same memory.
TEST(SharedGroup, LayersThatDoNotDependOnEachOtherAreRefused) {
  RuntimeResources runtime(1, *cpu_kernels().value());
  ExecutableOptions options;
  options.bounds = sizes(8);
  const auto decoder = Executable::make(decoder_graph(KvFormat::kF32, "cross.0", false), options, runtime);
  EXPECT_EQ(decoder.status().code(), Code::unsupported);
  EXPECT_THAT(decoder.status().message(), HasSubstr("read states of one group, and neither depends on the other"));
}

}  // namespace
}  // namespace redline::test
