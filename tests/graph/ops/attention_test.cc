// kv_append and attention, compiled and by their references: several sequences, steps of any size, every attribute and
// every cache format.
#include "graph/ops/attention.h"

#include <map>
#include <optional>

#include "backends/host_memory.h"
#include "graph/ops/kv_append.h"
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
  int64_t chunk = 0;
  bool is_causal = true, slopes = false, mask = false, bits = false;
};
/// Returns true if the mask of a test lets the token at `position` of a sequence see position p.
bool mask_shows(const AttentionCase& c, size_t sequence, int64_t position, int64_t p) {
  const auto chance = [&](int64_t a, int64_t b) {
    return (static_cast<uint64_t>(a * 131 + b * 7919 + static_cast<int64_t>(sequence)) * 0x9e3779b97f4a7c15ull) >> 33;
  };
  if (!c.mask) return true;
  if (position % 7 == 3 || chance(position, p / kKvPageTokens) % 3 == 0) return false;
  return !c.bits || chance(position + 1000, p) % 4 != 0;
}
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
/// The ALiBi slopes of a test, neither powers of two nor in order.
std::vector<float> slopes_of(int64_t heads) {
  std::vector<float> slopes = alibi_slopes(heads);
  for (size_t h = 0; h < slopes.size(); ++h) slopes[h] *= h % 2 == 0 ? 0.9f : 0.3f;
  return slopes;
}
WeightSource slopes_weight(int64_t heads) {
  static std::map<int64_t, std::vector<float>> kept;
  WeightSource source;
  source.view = {DType::kF32, {heads}, kept.try_emplace(heads, slopes_of(heads)).first->second.data()};
  return source;
}
constexpr int64_t kEntries = 8192;  ///< bound of the entries of a mask

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
  a.chunk = c.chunk;
  a.is_causal = c.is_causal;
  AttentionInputs inputs;
  if (c.sinks) inputs.sinks = g.weight("sinks", sinks_of(c.heads));
  if (c.slopes) inputs.slopes = g.weight("slopes", slopes_weight(c.heads));
  if (c.mask) {
    inputs.mask.ranges = g.input("ranges", DType::kI32, {tokens, Dim(2)});
    inputs.mask.blocks = g.input("blocks", DType::kI32, {Dim(kEntries)});
    if (c.bits) inputs.mask.bits = g.input("bits", DType::kI32, {Dim(kEntries)});
  }
  g.output("y", attention(g, q, kv_append(g, k, v, g.state("cache", cache)), a, inputs));
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
Answer answer(const AttentionCase& c, const History& h, size_t sequence, int64_t position, const double* q) {
  // Rounding of keys, values and weights in the cache format, and of float32 sums. A key's rounding changes a score by
  // at most the same share of the sum of its absolute products, a score's error d changes a weight by about d, and both
  // sums of the softmax have it.
  const double unit = c.format == KvFormat::kF32 ? 0x1p-24 : c.format == KvFormat::kF16 ? 0x1p-11 : 0x1p-8;
  const double scale = 1 / std::sqrt(static_cast<double>(c.head_dim));
  std::vector<int64_t> visible;
  for (int64_t p = 0; p < std::ssize(h.k); ++p)
    if ((p <= position || !c.is_causal) && (c.window == 0 || p > position - c.window) &&
        (c.chunk == 0 || p / c.chunk == position / c.chunk) && mask_shows(c, sequence, position, p))
      visible.push_back(p);
  double largest_bias = 0;
  Answer result{std::vector<double>(static_cast<size_t>(c.heads * c.head_dim)), 0};
  for (int64_t head = 0; head < c.heads; ++head) {
    const auto at = static_cast<size_t>(head / (c.heads / c.kv_heads) * c.head_dim);
    std::vector<double> weights;
    double total = c.sinks ? std::exp(sink_of(head)) : 0, largest_products = 0, largest_value = 0;
    for (const int64_t p : visible) {
      double dot = 0, products = 0;
      for (int64_t d = 0; d < c.head_dim; ++d) {
        const double product = q[head * c.head_dim + d] * h.k[static_cast<size_t>(p)][at + static_cast<size_t>(d)];
        dot += product;
        products += std::abs(product);
        largest_value = std::max(largest_value, std::abs(h.v[static_cast<size_t>(p)][at + static_cast<size_t>(d)]));
      }
      const double cap = static_cast<double>(c.soft_cap);
      const double slope = c.slopes ? static_cast<double>(slopes_of(c.heads)[static_cast<size_t>(head)]) : 0;
      const double bias = slope * static_cast<double>(p - position);
      weights.push_back(std::exp((cap > 0 ? cap * std::tanh(dot * scale / cap) : dot * scale) + bias));
      largest_bias = std::max(largest_bias, -bias);
      total += weights.back();
      largest_products = std::max(largest_products, products * scale);
    }
    for (size_t i = 0; i < visible.size(); ++i)
      for (int64_t d = 0; d < c.head_dim; ++d)
        result.y[static_cast<size_t>(head * c.head_dim + d)] +=
            weights[i] / total * h.v[static_cast<size_t>(visible[i])][at + static_cast<size_t>(d)];
    // A cap adds 10 roundings of a score, which are fewer than those of its sum; a sink one of its exponent; ALiBi
    // those of a bias, its sum and its exponent.
    const double sums = (static_cast<double>(std::ssize(visible) + 11 + c.head_dim) + 3 * largest_bias) * 0x1p-24;
    result.bound =
        std::max(result.bound, (2 * unit * largest_products + 2 * unit + 4 * sums + 0x1p-20) * largest_value);
  }
  return result;
}

/// The mask of a step of `rows[s]` tokens of sequence s, which have `lengths[s]` earlier ones.
std::map<std::string, HostTensor> mask_inputs(const AttentionCase& c, const std::vector<int64_t>& rows,
                                              const std::vector<int64_t>& lengths) {
  if (!c.mask) return {};
  std::vector<int64_t> ranges, blocks, bits;
  for (size_t s = 0; s < rows.size(); ++s)
    for (int64_t i = 0; i < rows[s]; ++i) {
      ranges.push_back(std::ssize(blocks));
      for (int64_t block = 0; block * kKvPageTokens < lengths[s] + rows[s]; ++block) {
        uint32_t word = 0;
        for (int64_t j = 0; j < kKvPageTokens; ++j)
          word |= static_cast<uint32_t>(mask_shows(c, s, lengths[s] + i, block * kKvPageTokens + j)) << j;
        if (word == 0) continue;
        blocks.push_back(block);
        bits.push_back(static_cast<int32_t>(word));
      }
      ranges.push_back(std::ssize(blocks));
    }
  EXPECT_LE(std::ssize(blocks), kEntries);
  blocks.resize(kEntries), bits.resize(kEntries);
  HostTensor pairs = integers(ranges);
  pairs.shape = {std::ssize(ranges) / 2, 2};
  return {{"ranges", pairs}, {"blocks", integers(blocks)}, {"bits", integers(bits)}};
}

/// Compiles the case for several numbers of workers, and interprets it; all must agree with answer().
void check_attention(const AttentionCase& c, const AttentionSteps& steps) {
  const size_t count = steps[0].size();
  int64_t most = 0, total = 0;
  for (const std::vector<int64_t>& step : steps) {
    int64_t rows = 0;
    for (const int64_t n : step) rows += n;
    most = std::max(most, rows);
    total += rows;
  }
  const int64_t pages = total / kKvPageTokens + 4 * static_cast<int64_t>(count);
  std::vector<std::vector<float>> first;
  for (const int workers : {0, 1, 2, 5}) {  // 0: the interpreter
    SymbolValues bounds = sizes(most);
    bounds[Symbol::kSequences] = static_cast<int64_t>(count);
    Compiled compiled;
    std::optional<Interpreter> interpreter;
    AttentionPlanShape shape = {};
    std::unique_ptr<StateMemory> memory;
    if (workers > 0) {
      compiled = Compiled::make(build_attention(c), workers, bounds);
      shape = {compiled.program->attention, c.heads, c.kv_heads, c.head_dim, most, static_cast<int64_t>(count)};
      memory = compiled.executor->make_state_memory(std::vector<int64_t>{pages}).value();
    } else {
      interpreter = std::move(Interpreter::make(build_attention(c))).value();
      memory = make_host_state_memory(interpreter->states(), std::vector<int64_t>{pages}).value();
    }
    TestSequences sequences(workers > 0 ? compiled.program->states : interpreter->states(), std::move(memory), pages,
                            count, shape);
    sequences.set_reach({.is_causal = c.is_causal, .rows_can_share = !c.slopes && !c.mask && c.chunk == 0});
    std::vector<History> histories(count);
    Numbers numbers(11);
    std::vector<std::vector<float>> outputs;
    for (const std::vector<int64_t>& step : steps) {
      std::vector<int64_t> lengths;
      for (const History& h : histories) lengths.push_back(std::ssize(h.k));
      const StepContext context = sequences.begin(step);
      const int64_t rows = context.sizes[Symbol::kTokens];
      std::map<std::string, HostTensor> inputs = mask_inputs(c, step, lengths);
      if (!c.bits) inputs.erase("bits");
      inputs["q"] = matrix(numbers, rows, c.heads * c.head_dim);
      inputs["k"] = matrix(numbers, rows, c.kv_heads * c.head_dim);
      inputs["v"] = matrix(numbers, rows, c.kv_heads * c.head_dim);
      const HostTensor &q = inputs["q"], &k = inputs["k"], &v = inputs["v"];
      if (interpreter) {
        auto result = interpreter->run(inputs, context);
        ASSERT_TRUE(result.ok()) << result.status().to_string();
        const std::vector<double>& y = result->at("y").data;
        outputs.emplace_back(y.begin(), y.end());
      } else {
        for (const auto& [name, tensor] : inputs) compiled.put(name.c_str(), tensor);
        ASSERT_TRUE(compiled.executor->step(context).ok());
        outputs.push_back(compiled.get("y", rows * c.heads * c.head_dim));
      }
      for (size_t s = 0, row = 0; s < count; ++s)
        for (int64_t i = 0; i < step[s]; ++i, ++row) {
          const double *key = k.row(static_cast<int64_t>(row)), *value = v.row(static_cast<int64_t>(row));
          histories[s].k.emplace_back(key, key + k.cols());
          histories[s].v.emplace_back(value, value + v.cols());
        }
      for (size_t s = 0, row = 0; s < count; ++s)
        for (int64_t i = 0; i < step[s]; ++i, ++row) {
          const Answer want = answer(c, histories[s], s, lengths[s] + i, q.row(static_cast<int64_t>(row)));
          for (size_t e = 0; e < want.y.size(); ++e)
            ASSERT_NEAR(outputs.back()[row * want.y.size() + e], want.y[e], workers == 0 ? 1e-5 : want.bound)
                << workers << " workers, sequence " << s << ", position " << lengths[s] + i << ", element " << e;
        }
      sequences.commit();
    }
    if (workers == 0) continue;
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

TEST(AttentionOp, ChunksHideThePositionsBeforeThem) {
  for (const int64_t chunk : {1, 7, 32, 33, 256}) {
    AttentionCase c = {4, 2, 16};
    c.chunk = chunk;
    check_attention(c, {{1, 2}, {5, 31}, {40, 1}, {1, 1}, {300, 70}, {1, 1}});
    c.window = 20;
    c.sinks = true;
    check_attention(c, {{200, 150}, {200, 1}, {1, 200}, {1, 1}});
  }
}

TEST(AttentionOp, WithoutIsCausalAllPositionsAreSeen) {
  AttentionCase c = {6, 3, 20};
  c.is_causal = false;
  check_attention(c, {{1, 33}, {5, 0}, {300, 1}, {1, 1}});
  c.soft_cap = 2, c.sinks = true, c.format = KvFormat::kF16;
  check_attention(c, {{700, 2}, {1, 40}});
}

TEST(AttentionOp, AlibiLowersTheScoresOfDistantPositions) {
  for (const int64_t heads : {1, 2, 6, 8}) {
    AttentionCase c = {heads, heads == 6 ? 3 : 1, 24};
    c.slopes = true;
    check_attention(c, {{1, 2}, {5, 31}, {40, 1}, {1, 1}, {300, 70}, {1, 1}});
  }
  AttentionCase c = {4, 2, 17, 50, KvFormat::kF16, 3.0f, true, 40};
  c.slopes = true;
  check_attention(c, {{37}, {1}, {300}, {1}});
}

TEST(AttentionOp, MasksHidePositionsAndBlocks) {
  for (const bool bits : {false, true}) {
    AttentionCase c = {4, 2, 16};
    c.mask = true, c.bits = bits;
    check_attention(c, {{1, 2}, {5, 31}, {40, 1}, {1, 1}, {300, 70}, {1, 1}, {3, 600}});
    c.is_causal = false, c.sinks = true, c.format = KvFormat::kF16;
    check_attention(c, {{33, 2}, {1, 300}, {1, 1}});
    c.is_causal = true, c.chunk = 48, c.slopes = true;
    check_attention(c, {{33, 2}, {1, 300}, {1, 1}});
  }
}

TEST(AttentionOp, AlibiSlopesFollowTheRule) {
  EXPECT_EQ(alibi_slopes(0), (std::vector<float>{}));
  EXPECT_EQ(alibi_slopes(1), (std::vector<float>{0x1p-8f}));
  EXPECT_EQ(alibi_slopes(8), (std::vector<float>{0.5f, 0.25f, 0.125f, 0x1p-4f, 0x1p-5f, 0x1p-6f, 0x1p-7f, 0x1p-8f}));
  // Three heads: those of two, then the first of four.
  EXPECT_EQ(alibi_slopes(3), (std::vector<float>{0x1p-4f, 0x1p-8f, 0x1p-2f}));
  EXPECT_EQ(alibi_slopes(6), (std::vector<float>{0x1p-2f, 0x1p-4f, 0x1p-6f, 0x1p-8f, 0x1p-1f, 0x1p-3f}));
  EXPECT_EQ(alibi_slopes(2, 4), (std::vector<float>{0x1p-2f, 0x1p-4f}));
}

TEST(AttentionOp, EveryCacheFormatStaysWithinItsRounding) {
  auto kernels = cpu_kernels();
  ASSERT_TRUE(kernels.ok());
  for (const KvFormat format : {KvFormat::kF16, KvFormat::kBF16}) {
    if (!(*kernels)->attention[static_cast<size_t>(format)] || !(*kernels)->kv_append[static_cast<size_t>(format)])
      continue;  // no text model uses it on this instruction set
    check_attention({4, 2, 64, 0, format}, {{1}, {37}, {1}, {300}, {1}});
    check_attention({4, 1, 24, 50, format}, {{9, 70}, {1, 1}, {90, 1}});
    check_attention({4, 2, 40, 0, format, 0, true, 64}, {{37, 2}, {1, 300}, {300, 1}});
    check_attention({4, 2, 40, 0, format, 0, false, 0, false}, {{37, 2}, {1, 300}, {300, 1}});
    check_attention({4, 2, 40, 0, format, 0, false, 0, true, true}, {{37, 2}, {1, 300}, {300, 1}});
    check_attention({4, 2, 40, 0, format, 0, true, 0, true, false, true, true}, {{37, 2}, {1, 300}, {300, 1}});
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
    g.output("y", attention(g, q, kv_append(g, k, k, g.state("cache", cache)), a));
    return g.finish().status().message();
  };
  EXPECT_EQ(message(4, 2, 0, 0), "");
  EXPECT_EQ(message(3, 2, 0, 0), "attention: 3 heads do not divide among 2 key-value heads");
  EXPECT_EQ(message(4, 4, 0, 0), "kv_append: k [tokens, 32] and v [tokens, 32] are not 4 heads of 16");
  EXPECT_EQ(message(2, 2, 0, 0), "attention: q [tokens, 64] is not 2 heads of 16");
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
    g.output("y", attention(g, q, kv_append(g, q, q, g.state("cache", cache)), a));
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
    g.output("y", attention(g, q, kv_append(g, q, q, g.state("cache", cache)), a,
                            {.sinks = g.weight("sinks", sinks_of(sinks))}));
    return g.finish().status().message();
  };
  EXPECT_EQ(more(0, 2), "");
  EXPECT_EQ(more(-1, 2), "attention: a soft cap of -1");
  EXPECT_EQ(more(1, 3), "attention: sinks are [3], expected a weight [2]");
}

TEST(AttentionOp, AttributesThatDoNotFitAreRefused) {
  using Change = std::function<void(GraphBuilder & g, AttentionAttrs & a, AttentionInputs & inputs)>;
  const auto message = [](bool is_cross, const Change& change, int64_t cache_window = 0) {
    GraphBuilder g("test");
    const Dim tokens(Symbol::kTokens);
    const Value q = g.input("q", DType::kF32, {tokens, Dim(32)});
    StateAttrs cache;
    cache.num_heads = 2, cache.head_dim = 16, cache.window = cache_window;
    AttentionAttrs a;
    a.num_heads = 2;
    AttentionInputs inputs;
    change(g, a, inputs);
    const Value state = g.state("cache", cache);
    g.output("y", attention(g, q, is_cross ? state : kv_append(g, q, q, state), a, inputs));
    return g.finish().status().message();
  };
  const auto attrs = [&](bool is_cross, const std::function<void(AttentionAttrs & a)>& change, int64_t window = 0) {
    return message(
        is_cross, [&](GraphBuilder&, AttentionAttrs& a, AttentionInputs&) { change(a); }, window);
  };
  EXPECT_EQ(attrs(true, [](AttentionAttrs& a) { a.is_causal = false; }), "");
  EXPECT_EQ(attrs(true, [](AttentionAttrs&) {}),
            "attention: a state that the graph does not append to is read without is_causal");
  EXPECT_EQ(attrs(false, [](AttentionAttrs& a) { a.is_causal = false, a.window = 3; }),
            "attention: a window without is_causal");
  EXPECT_EQ(attrs(true, [](AttentionAttrs& a) { a.is_causal = false, a.chunk = 3; }),
            "attention: chunks without is_causal");
  EXPECT_EQ(attrs(false, [](AttentionAttrs& a) { a.chunk = -1; }), "attention: a window of 0, chunks of -1");
  EXPECT_EQ(attrs(
                false, [](AttentionAttrs& a) { a.chunk = 8; }, 8),
            "");
  EXPECT_EQ(attrs(
                false, [](AttentionAttrs& a) { a.chunk = 9; }, 8),
            "attention: a window of 0 and chunks of 9 over a cache that keeps 8");
  EXPECT_EQ(attrs(
                false, [](AttentionAttrs& a) { a.is_causal = false; }, 8),
            "attention: all positions of a cache that keeps 8");
  EXPECT_EQ(message(false,
                    [](GraphBuilder& g, AttentionAttrs& a, AttentionInputs& inputs) {
                      a.is_causal = false;
                      inputs.slopes = g.weight("slopes", slopes_weight(2));
                    }),
            "attention: slopes without is_causal");
  EXPECT_EQ(message(false, [](GraphBuilder& g, AttentionAttrs&,
                              AttentionInputs& inputs) { inputs.slopes = g.weight("slopes", slopes_weight(3)); }),
            "attention: slopes are [3], expected a weight [2]");
  const auto mask = [&](const Shape& ranges, const Shape& blocks, const Shape& bits) {
    return message(false, [&](GraphBuilder& g, AttentionAttrs&, AttentionInputs& inputs) {
      if (!ranges.empty()) inputs.mask.ranges = g.input("ranges", DType::kI32, ranges);
      if (!blocks.empty()) inputs.mask.blocks = g.input("blocks", DType::kI32, blocks);
      if (!bits.empty()) inputs.mask.bits = g.input("bits", DType::kI32, bits);
    });
  };
  const Dim tokens(Symbol::kTokens);
  EXPECT_EQ(mask({tokens, 2}, {9}, {9}), "");
  EXPECT_EQ(mask({tokens, 2}, {9}, {}), "");
  EXPECT_EQ(mask({tokens, 2}, {}, {9}), "attention: a mask needs the ranges of tokens and the blocks");
  EXPECT_EQ(mask({tokens}, {9}, {9}), "attention: ranges of the mask are [tokens], expected i32 [tokens, 2]");
  EXPECT_EQ(mask({tokens, 2}, {9, 2}, {9}), "attention: blocks of the mask are [9, 2], expected i32 [entries]");
  EXPECT_EQ(mask({tokens, 2}, {9}, {8}), "attention: bits of the mask are [8], expected i32 [9]");
  GraphBuilder g("test");
  const Value q = g.input("q", DType::kF32, {tokens, Dim(32)});
  g.output("y", attention(g, q, q, AttentionAttrs{.num_heads = 2}));
  EXPECT_EQ(g.finish().status().message(), "attention: q is neither from kv_append nor a state");
}

}  // namespace
}  // namespace redline::test
