// kv_append and attention, compiled: several sequences, steps of any size, windows, and every cache format.
#include "graph/ops/attention.h"

#include "kernels/cpu/cpu_kernels.h"
#include "support/graph_harness.h"
#include "support/sequences.h"

namespace redline::test {
namespace {

struct AttentionCase {
  int64_t heads, kv_heads, head_dim, window = 0;
  KvFormat format = KvFormat::kF32;
  float soft_cap = 0;
  bool sinks = false;
};
/// The sink of a head: from far below the scores to above them.
double sink_of(int64_t head) { return 1.5 * static_cast<double>(head) - 2; }
WeightSource sinks_of(int64_t heads) {
  constexpr int64_t kMaxHeads = 8;
  static const std::vector<float> values = [] {
    std::vector<float> v;
    for (int64_t h = 0; h < kMaxHeads; ++h) v.push_back(static_cast<float>(sink_of(h)));
    return v;
  }();
  WeightSource source;
  source.view = {DType::kF32, {heads}, values.data()};
  return source;
}
/// Rows of each sequence in each step.
using AttentionSteps = std::vector<std::vector<int64_t>>;

Graph build_attention(const AttentionCase& c) {
  GraphBuilder g("test");
  const Dim tokens(Symbol::kTokens);
  const auto input = [&](const char* name, int64_t heads) {
    return g.input(name, DType::kF32, {tokens, Dim(heads * c.head_dim)});
  };
  const Value q = input("q", c.heads), k = input("k", c.kv_heads), v = input("v", c.kv_heads);
  StateAttrs cache;
  cache.num_heads = c.kv_heads;
  cache.head_dim = c.head_dim;
  cache.window = c.window;
  cache.format = c.format;
  AttentionAttrs a;
  a.num_heads = c.heads;
  a.window = c.window;
  a.scale = 1 / std::sqrt(static_cast<float>(c.head_dim));
  a.soft_cap = c.soft_cap;
  const Value sinks = c.sinks ? g.weight("sinks", sinks_of(c.heads)) : Value{};
  g.output("y", attention(g, q, k, v, g.state("cache", cache), a, sinks));
  return std::move(g.finish()).value();
}

/// The keys and values of a sequence so far, [position][kv_heads * head_dim].
struct History {
  std::vector<std::vector<double>> k, v;
};

/// The answer for one row in float64, and a bound for the error of the kernels: see below.
struct Answer {
  std::vector<double> y;
  double bound = 0;
};
Answer answer(const AttentionCase& c, const History& h, int64_t position, const double* q) {
  // Rounding of keys, values and weights in the cache format, and of float32 sums. A key's rounding changes a score by
  // at most the same share of the sum of its absolute products, a score's error d changes a weight by about d, and both
  // sums of the softmax have it.
  const double unit = c.format == KvFormat::kF32 ? 0x1p-24 : c.format == KvFormat::kF16 ? 0x1p-11 : 0x1p-8;
  const double scale = 1 / std::sqrt(static_cast<double>(c.head_dim));
  const int64_t first = c.window > 0 ? std::max<int64_t>(0, position - c.window + 1) : 0;
  Answer result{std::vector<double>(static_cast<size_t>(c.heads * c.head_dim)), 0};
  for (int64_t head = 0; head < c.heads; ++head) {
    const auto at = static_cast<size_t>(head / (c.heads / c.kv_heads) * c.head_dim);
    std::vector<double> weights;
    double total = c.sinks ? std::exp(sink_of(head)) : 0, largest_products = 0, largest_value = 0;
    for (int64_t p = first; p <= position; ++p) {
      double dot = 0, products = 0;
      for (int64_t d = 0; d < c.head_dim; ++d) {
        const double product = q[head * c.head_dim + d] * h.k[static_cast<size_t>(p)][at + static_cast<size_t>(d)];
        dot += product;
        products += std::abs(product);
        largest_value = std::max(largest_value, std::abs(h.v[static_cast<size_t>(p)][at + static_cast<size_t>(d)]));
      }
      const double cap = static_cast<double>(c.soft_cap);
      weights.push_back(std::exp(cap > 0 ? cap * std::tanh(dot * scale / cap) : dot * scale));
      total += weights.back();
      largest_products = std::max(largest_products, products * scale);
    }
    for (int64_t p = first; p <= position; ++p)
      for (int64_t d = 0; d < c.head_dim; ++d)
        result.y[static_cast<size_t>(head * c.head_dim + d)] +=
            weights[static_cast<size_t>(p - first)] / total * h.v[static_cast<size_t>(p)][at + static_cast<size_t>(d)];
    // A cap adds 10 roundings of a score, which are fewer than those of its sum; a sink one of its exponent.
    const double sums = static_cast<double>(position - first + 11 + c.head_dim) * 0x1p-24;
    result.bound =
        std::max(result.bound, (2 * unit * largest_products + 2 * unit + 4 * sums + 0x1p-20) * largest_value);
  }
  return result;
}

void check_attention(const AttentionCase& c, const AttentionSteps& steps) {
  const size_t count = steps[0].size();
  int64_t most = 0, total = 0;
  for (const std::vector<int64_t>& step : steps) {
    int64_t rows = 0;
    for (const int64_t n : step) rows += n;
    most = std::max(most, rows);
    total += rows;
  }
  std::vector<std::vector<float>> first;
  for (const int workers : {1, 2, 5}) {
    SymbolValues bounds = sizes(most);
    bounds[Symbol::kSequences] = static_cast<int64_t>(count);
    Compiled compiled = Compiled::make(build_attention(c), workers, bounds);
    const int64_t pages = total / kKvPageTokens + 4 * static_cast<int64_t>(count);
    TestSequences sequences(
        compiled.program->states, compiled.executor->make_state_memory(std::vector<int64_t>{pages}).value(), pages,
        count, {compiled.program->attention, c.heads, c.kv_heads, c.head_dim, most, static_cast<int64_t>(count)});
    std::vector<History> histories(count);
    Numbers numbers(11);
    std::vector<std::vector<float>> outputs;
    for (const std::vector<int64_t>& step : steps) {
      const StepContext context = sequences.begin(step);
      const int64_t rows = context.sizes[Symbol::kTokens];
      const HostTensor q = matrix(numbers, rows, c.heads * c.head_dim),
                       k = matrix(numbers, rows, c.kv_heads * c.head_dim),
                       v = matrix(numbers, rows, c.kv_heads * c.head_dim);
      compiled.put("q", q), compiled.put("k", k), compiled.put("v", v);
      ASSERT_TRUE(compiled.executor->step(context).ok());
      outputs.push_back(compiled.get("y", rows * c.heads * c.head_dim));
      int64_t row = 0;
      for (size_t s = 0; s < count; ++s)
        for (int64_t i = 0; i < step[s]; ++i, ++row) {
          History& h = histories[s];
          h.k.emplace_back(k.row(row), k.row(row) + k.cols());
          h.v.emplace_back(v.row(row), v.row(row) + v.cols());
          const Answer want = answer(c, h, std::ssize(h.k) - 1, q.row(row));
          for (size_t e = 0; e < want.y.size(); ++e)
            ASSERT_NEAR(outputs.back()[static_cast<size_t>(row) * want.y.size() + e], want.y[e], want.bound)
                << "sequence " << s << ", position " << h.k.size() - 1 << ", element " << e;
        }
      sequences.commit();
    }
    if (first.empty()) first = outputs;
    // Splits of bfloat16 pages equal a whole call only within rounding (AttentionMergeArgs).
    EXPECT_TRUE(c.format == KvFormat::kBF16 || outputs == first) << workers << " workers give other bits than one";
  }
}

TEST(AttentionOp, StepsOfAnySizeSeeAllEarlierPositions) {
  const AttentionSteps alone = {{1}, {1}, {15}, {16}, {17}, {31}, {1}, {97}, {1}};
  check_attention({4, 2, 16}, alone);
  check_attention({3, 3, 20}, alone);
  check_attention({8, 1, 64}, alone);
  check_attention({2, 1, 5}, alone);
}

TEST(AttentionOp, SequencesOfAStepDoNotSeeEachOther) {
  check_attention({4, 2, 32}, {{3, 0, 1}, {1, 40, 1}, {0, 1, 1}, {33, 1, 64}, {1, 1, 1}});
}

TEST(AttentionOp, AWindowLimitsWhatIsSeenAndKept) {
  for (const int64_t window : {1, 7, 32, 33}) {
    check_attention({4, 2, 16, window}, {{1}, {5}, {40}, {1}, {64}});
    // Far enough that pages leave the window and are used again.
    check_attention({2, 1, 16, window}, {{200, 150}, {200, 1}, {1, 200}, {100, 100}, {1, 1}});
  }
}

TEST(AttentionOp, SoftCapsAndSinks) {
  constexpr KvFormat kF32 = KvFormat::kF32;
  for (const AttentionCase& c :
       {AttentionCase{4, 2, 16, 0, kF32, 0.7f}, {4, 2, 16, 0, kF32, 0, true}, {6, 2, 24, 33, kF32, 2.0f, true}})
    check_attention(c, {{1, 3}, {5, 40}, {40, 1}, {1, 1}, {300, 2}, {1, 1}, {1, 300}});
  check_attention({4, 1, 64, 0, KvFormat::kF16, 1.0f, true}, {{1}, {37}, {1}, {300}, {1}});
}

TEST(AttentionOp, EveryCacheFormatStaysWithinItsRounding) {
  auto kernels = cpu_kernels();
  ASSERT_TRUE(kernels.ok());
  for (const KvFormat format : {KvFormat::kF16, KvFormat::kBF16}) {
    if (!(*kernels)->attention[static_cast<size_t>(format)] || !(*kernels)->kv_append[static_cast<size_t>(format)])
      continue;  // no text model uses it on this instruction set
    check_attention({4, 2, 64, 0, format}, {{1}, {37}, {1}, {300}, {1}});
    check_attention({4, 1, 24, 50, format}, {{9, 70}, {1, 1}, {90, 1}});
  }
}

TEST(AttentionOp, ShapesThatDoNotFitAreRefused) {
  const auto message = [](int64_t heads, int64_t kv_heads, int64_t window, int64_t cache_window) {
    GraphBuilder g("test");
    const Dim tokens(Symbol::kTokens);
    const Value q = g.input("q", DType::kF32, {tokens, Dim(64)}), k = g.input("k", DType::kF32, {tokens, Dim(32)});
    StateAttrs cache;
    cache.num_heads = kv_heads;
    cache.head_dim = 16;
    cache.window = cache_window;
    AttentionAttrs a;
    a.num_heads = heads;
    a.window = window;
    g.output("y", attention(g, q, k, k, g.state("cache", cache), a));
    return g.finish().status().message();
  };
  EXPECT_EQ(message(4, 2, 0, 0), "");
  EXPECT_EQ(message(4, 3, 0, 0), "attention: 4 heads do not divide among 3 key-value heads");
  EXPECT_EQ(message(4, 4, 0, 0),
            "attention: q [tokens, 64], k [tokens, 32], v [tokens, 32] are not 4 heads over 4 of 16");
  EXPECT_EQ(message(4, 2, 0, 8), "attention: a window of 0 over a cache that keeps 8");
  EXPECT_EQ(message(4, 2, 9, 8), "attention: a window of 9 over a cache that keeps 8");
  const auto heads_of = [](int64_t head_dim) {
    GraphBuilder g("test");
    const Value q = g.input("q", DType::kF32, {Dim(Symbol::kTokens), Dim(head_dim)});
    StateAttrs cache;
    cache.num_heads = 1;
    cache.head_dim = head_dim;
    AttentionAttrs a;
    a.num_heads = 1;
    g.output("y", attention(g, q, q, q, g.state("cache", cache), a));
    return g.finish().status().message();
  };
  EXPECT_EQ(heads_of(640), "");
  EXPECT_EQ(heads_of(641), "kv_append: heads of 641 elements; at most 640");
  const auto more = [](float soft_cap, int64_t sinks) {
    GraphBuilder g("test");
    const Value q = g.input("q", DType::kF32, {Dim(Symbol::kTokens), Dim(32)});
    StateAttrs cache;
    cache.num_heads = 2;
    cache.head_dim = 16;
    AttentionAttrs a;
    a.num_heads = 2;
    a.soft_cap = soft_cap;
    g.output("y", attention(g, q, q, q, g.state("cache", cache), a, g.weight("sinks", sinks_of(sinks))));
    return g.finish().status().message();
  };
  EXPECT_EQ(more(0, 2), "");
  EXPECT_EQ(more(-1, 2), "attention: a soft cap of -1");
  EXPECT_EQ(more(1, 3), "attention: sinks are [3], expected a weight [2]");
}

}  // namespace
}  // namespace redline::test
