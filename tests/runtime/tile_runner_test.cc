// Programs on the emulated device: attention over the paged cache, persistent steps in any order of the warps, planted
// faults, and the static check of schedules (over 600 lines: the cases share these graphs).
#include "backends/tiles/tile_runner.h"

#include <gmock/gmock.h>

#include <thread>

#include "backends/tiles/library_choice.h"
#include "graph/check_program.h"
#include "graph/ops/add.h"
#include "graph/ops/attention.h"
#include "graph/ops/expert_linear.h"
#include "graph/ops/kv_append.h"
#include "graph/ops/linear.h"
#include "graph/ops/moe_router.h"
#include "graph/ops/rms_norm.h"
#include "graph/ops/scale.h"
#include "graph/ops/silu_mul.h"
#include "support/random_weight.h"
#include "support/sequences.h"
#include "support/tile_harness.h"

namespace redline::test {
namespace {

const Dim kTileTokens = Symbol::kTokens;

struct TileAttentionCase {
  int64_t heads, kv_heads, head_dim, window = 0;
  KvFormat format = KvFormat::kF32;
  float soft_cap = 0;
  bool sinks = false, exact_f32 = true;
  int64_t chunk = 0;
  bool slopes = false;
};

Graph tile_attention_graph(const TileAttentionCase& c) {
  static const std::vector<float> kSinks = {-2, -0.5, 1, 2.5, 4, -1, 0, 3}, kSlopes = alibi_slopes(8);
  GraphBuilder g("test");
  const auto input = [&](const char* name, int64_t heads) {
    return g.input(name, DType::kF32, {kTileTokens, Dim(heads * c.head_dim)});
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
  const auto weight = [&](const char* name, const float* values) {
    WeightSource source;
    source.view = {DType::kF32, {c.heads}, values};
    return g.weight(name, source);
  };
  AttentionInputs inputs;
  if (c.sinks) inputs.sinks = weight("sinks", kSinks.data());
  if (c.slopes) inputs.slopes = weight("slopes", kSlopes.data());
  g.output("y", attention(g, q, kv_append(g, k, v, g.state("cache", cache)), a, inputs));
  return std::move(g.finish()).value();
}

int64_t sum(const std::vector<int64_t>& rows) { return std::accumulate(rows.begin(), rows.end(), int64_t{0}); }

float rounded(KvFormat format, float x) {
  if (format == KvFormat::kF32) return x;
  return format == KvFormat::kF16 ? f16_to_f32(f32_to_f16(x)) : bf16_to_f32(f32_to_bf16(x));
}

/// Runs steps of several sequences through the interpreter, in float64 with keys and values as the cache rounds them,
/// and through the tile runner in both ways.
/// `pieces`: grows by the items that were a part of the positions of their rows.
void check_attention(const TileAttentionCase& c, const std::vector<std::vector<int64_t>>& steps, int multiprocessors,
                     double tolerance, int64_t* pieces = nullptr) {
  const Graph graph = tile_attention_graph(c);
  int64_t most = 0, positions = 0;
  for (const auto& rows : steps) most = std::max(most, sum(rows)), positions += sum(rows);
  const int64_t pages = positions / kKvPageTokens + 3 * std::ssize(steps[0]);
  SymbolValues bounds = sizes(most);
  bounds[Symbol::kSequences] = std::ssize(steps[0]);
  auto reference = make_interpreter_runner(graph, bounds);
  ASSERT_TRUE(reference.ok());
  std::vector<TileCompiled> compiled;
  std::vector<std::unique_ptr<TestSequences>> sequences;  // end before the programs, whose state groups they refer to
  const auto add_sequences = [&](Runner& runner, int slots) {
    const std::vector<int64_t> counts(runner.states().groups.size(), pages);
    auto memory = runner.make_state_memory(counts);
    ASSERT_TRUE(memory.ok());
    const AttentionPlanShape shape{{slots}, c.heads, c.kv_heads, c.head_dim, most, std::ssize(steps[0])};
    sequences.push_back(
        std::make_unique<TestSequences>(runner.states(), std::move(memory).value(), pages, steps[0].size(), shape));
    sequences.back()->set_reach({.rows_can_share = c.chunk == 0 && !c.slopes});
  };
  add_sequences(**reference, 0);
  for (const bool persistent : {false, true}) {
    compiled.push_back(TileCompiled::make(
        graph, bounds, {.exact_f32 = c.exact_f32, .multiprocessors = multiprocessors, .persistent = persistent}));
    ASSERT_TRUE(compiled.back().status.ok()) << compiled.back().status.to_string();
    add_sequences(*compiled.back().runner, multiprocessors);
  }
  Numbers numbers(5);
  for (const auto& rows : steps) {
    const int64_t n = sum(rows);
    const std::map<std::string, HostTensor> in = {{"q", matrix(numbers, n, c.heads * c.head_dim)},
                                                  {"k", matrix(numbers, n, c.kv_heads * c.head_dim)},
                                                  {"v", matrix(numbers, n, c.kv_heads * c.head_dim)}};
    std::vector<std::vector<float>> results;
    for (size_t i = 0; i < sequences.size(); ++i) {
      Runner& runner = i == 0 ? **reference : static_cast<Runner&>(*compiled[i - 1].runner);
      for (const auto& [name, tensor] : in) {
        HostTensor given = tensor;
        if (i == 0 && name != "q")
          for (double& x : given.data) x = rounded(c.format, static_cast<float>(x));
        put(runner, graph, name, given);
      }
      const StepContext step = sequences[i]->begin(rows);
      if (const AttentionWork& work = step.states[0].attention; pieces && i == 1)
        for (int32_t k = 0; k < work.partition_begin[multiprocessors]; ++k) *pieces += work.items[k].split >= 0;
      const Status status = runner.step(step);
      ASSERT_TRUE(status.ok()) << status.to_string();
      sequences[i]->commit();
      results.push_back(get(runner, "y", n * c.heads * c.head_dim));
    }
    for (size_t e = 0; e < results[0].size(); ++e) {
      ASSERT_NEAR(results[0][e], results[1][e], tolerance) << "element " << e;
      ASSERT_EQ(results[1][e], results[2][e]) << "element " << e;
    }
  }
}

TEST(TileAttention, EqualsTheReference) {
  const std::vector<std::vector<int64_t>> steps = {{5, 33, 0}, {1, 1, 40}, {31, 0, 1}, {1, 1, 1}};
  // Values are normal, of which a weighted mean is taken: float32 leaves some units of 2^-24 of numbers below 4.
  check_attention({4, 2, 8}, steps, 3, 4e-6);
  check_attention({4, 4, 33}, steps, 3, 4e-6);
  check_attention({6, 1, 80}, steps, 5, 4e-6);
  check_attention({4, 2, 8, 7}, steps, 3, 4e-6);
  check_attention({4, 2, 8, 40}, steps, 3, 4e-6);
  check_attention({4, 2, 16, 0, KvFormat::kF32, 3.0f}, steps, 3, 4e-6);
  check_attention({4, 2, 16, 0, KvFormat::kF32, 0, true}, steps, 3, 4e-6);
  // The reference has the rounded keys and values, so the bound is that of float32.
  for (const KvFormat format : {KvFormat::kF16, KvFormat::kBF16}) {
    check_attention({4, 2, 16, 0, format}, steps, 3, 4e-6);
    check_attention({4, 4, 33, 0, format, 3.0f}, steps, 3, 4e-6);
    check_attention({6, 1, 80, 7, format, 0, true}, steps, 5, 4e-6);
    check_attention({2, 2, 640, 0, format}, steps, 3, 4e-6);
  }
}

TEST(TileAttention, ComputesChunksAndAlibi) {
  const std::vector<std::vector<int64_t>> steps = {{5, 33, 0}, {1, 1, 40}, {300, 0, 1}, {1, 1, 1}};
  for (const int64_t chunk : {0, 1, 32, 50, 256})
    for (const bool slopes : {false, true}) {
      TileAttentionCase c = {4, 2, 16, 0, KvFormat::kF16, 0, chunk == 50, chunk != 32, chunk, slopes};
      check_attention(c, steps, 3, 4e-6);
      c.window = 40, c.soft_cap = 3.0f;
      check_attention(c, steps, 12, 4e-6);
    }
}

TEST(TileAttention, RefusesByNameWhatItDoesNotCompute) {
  const auto message = [](bool is_cross, bool has_mask) {
    GraphBuilder g("test");
    const Value q = g.input("q", DType::kF32, {kTileTokens, Dim(32)});
    StateAttrs cache;
    cache.num_heads = 2, cache.head_dim = 16;
    const Value state = g.state("cache", cache);
    AttentionInputs inputs;
    if (has_mask) {
      inputs.mask.ranges = g.input("ranges", DType::kI32, {kTileTokens, Dim(2)});
      inputs.mask.blocks = g.input("blocks", DType::kI32, {Dim(9)});
    }
    g.output("y", attention(g, q, is_cross ? state : kv_append(g, q, q, state),
                            AttentionAttrs{.num_heads = 2, .scale = 1, .is_causal = has_mask}, inputs));
    return TileCompiled::make(std::move(g.finish()).value(), sizes(8), {}).status.message();
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(message(false, true), HasSubstr("devices have no kernel for a mask"));
  EXPECT_THAT(message(true, false), HasSubstr("devices have no kernel for cross attention"));
  EXPECT_THAT(message(false, false), HasSubstr("devices have no kernel for attention that is not causal"));
}

// Few items and many multiprocessors: the plan splits positions, and partial results are merged.
TEST(TileAttention, SplitPositionsAreMerged) {
  int64_t pieces = 0;
  check_attention({2, 1, 16}, {{300, 20}, {1, 1}, {2, 1}, {290, 1}, {1, 1}}, 12, 4e-6, &pieces);
  EXPECT_GT(pieces, 1);
  pieces = 0;
  check_attention({2, 1, 16, 500, KvFormat::kF32, 0, true}, {{700, 1}, {1, 0}}, 12, 4e-6, &pieces);
  EXPECT_GT(pieces, 1);
  for (const KvFormat format : {KvFormat::kF16, KvFormat::kBF16}) {
    pieces = 0;
    check_attention({2, 1, 16, 0, format}, {{300, 20}, {1, 1}}, 12, 4e-6, &pieces);
    EXPECT_GT(pieces, 1);
  }
}

/// Queries and weights are rounded to float16, by at most 2^-11 / sqrt(3) of themselves in rms: scores are of order 1,
/// and a weighted mean of normal values moves by as much. This is five times both together.
constexpr double kF16Tolerance = 0x1p-9;
TileAttentionCase by_tensor_cores(TileAttentionCase c) {
  c.format = KvFormat::kF16;
  c.exact_f32 = false;
  return c;
}

// Heads of one unit of a warp to all units of all warps, several chunks, windows inside and past a chunk, groups of
// query heads that do not divide a tile.
TEST(TileAttention, OfTensorCoresEqualsTheReference) {
  const std::vector<std::vector<int64_t>> steps = {{5, 33, 0}, {1, 1, 40}, {31, 0, 1}, {1, 1, 1}};
  check_attention(by_tensor_cores({4, 2, 16}), steps, 3, kF16Tolerance);
  check_attention(by_tensor_cores({8, 8, 64}), steps, 3, kF16Tolerance);
  check_attention(by_tensor_cores({6, 1, 80}), steps, 5, kF16Tolerance);
  check_attention(by_tensor_cores({7, 1, 128, 40}), steps, 3, kF16Tolerance);
  check_attention(by_tensor_cores({8, 2, 256, 7, {}, 3.0f, true}), steps, 3, kF16Tolerance);
  check_attention(by_tensor_cores({4, 2, 32, 300, {}, 0, true}), {{600, 1}, {1, 30}, {3, 1}}, 2, kF16Tolerance);
  // Others are computed in float32.
  check_attention(by_tensor_cores({4, 2, 8}), steps, 3, 4e-6);
  check_attention(by_tensor_cores({2, 1, 272}), steps, 3, 4e-6);
}

TEST(TileAttention, OfTensorCoresMergesSplitPositions) {
  for (const int64_t window : {0, 500}) {
    int64_t pieces = 0;
    check_attention(by_tensor_cores({2, 1, 16, window, {}, 0, window > 0}), {{700, 20}, {1, 1}, {2, 1}}, 12,
                    kF16Tolerance, &pieces);
    EXPECT_GT(pieces, 1);
  }
}

/// y of the rows of one sequence, cut into steps, beside another sequence with `others` rows in each.
std::vector<float> attend_in_steps(const TileAttentionCase& c, const std::vector<int64_t>& steps, int64_t others,
                                   int multiprocessors) {
  const Graph graph = tile_attention_graph(c);
  const int64_t most = *std::max_element(steps.begin(), steps.end()) + others, all = sum(steps);
  SymbolValues bounds = sizes(most);
  bounds[Symbol::kSequences] = 2;
  TileCompiled compiled =
      TileCompiled::make(graph, bounds, {.exact_f32 = c.exact_f32, .multiprocessors = multiprocessors});
  EXPECT_TRUE(compiled.status.ok()) << compiled.status.to_string();
  Runner& runner = *compiled.runner;
  const int64_t pages = (all + std::ssize(steps) * others) / kKvPageTokens + 6;
  auto memory = runner.make_state_memory(std::vector<int64_t>(runner.states().groups.size(), pages));
  TestSequences sequences(runner.states(), std::move(memory).value(), pages, 2,
                          {{multiprocessors}, c.heads, c.kv_heads, c.head_dim, most, 2});
  Numbers own(5), more(77);
  std::vector<float> y;
  for (const int64_t rows : steps) {
    for (const auto& [name, heads] : {std::pair{"q", c.heads}, {"k", c.kv_heads}, {"v", c.kv_heads}}) {
      // By position: each has its own seed.
      HostTensor given{{rows + others, heads * c.head_dim}, {}};
      for (int64_t row = 0; row < rows; ++row) {
        Numbers of_row(static_cast<uint32_t>(1 + 3 * (std::ssize(y) / (c.heads * c.head_dim) + row) + name[0]));
        const HostTensor one = matrix(of_row, 1, heads * c.head_dim);
        given.data.insert(given.data.end(), one.data.begin(), one.data.end());
      }
      const HostTensor rest = matrix(more, others, heads * c.head_dim);
      given.data.insert(given.data.end(), rest.data.begin(), rest.data.end());
      put(runner, graph, name, given);
    }
    const StepContext step = sequences.begin({rows, others});
    const Status status = runner.step(step);
    EXPECT_TRUE(status.ok()) << status.to_string();
    sequences.commit();
    const std::vector<float> out = get(runner, "y", (rows + others) * c.heads * c.head_dim);
    y.insert(y.end(), out.begin(), out.begin() + rows * c.heads * c.head_dim);
  }
  return y;
}

// Neither how a text is cut into steps, nor the rows beside it, nor how its positions are split changes a row.
TEST(TileAttention, RowsOfTensorCoresDoNotDependOnOthers) {
  for (const int64_t window : {0, 70}) {
    const TileAttentionCase c = by_tensor_cores({6, 2, 32, window});
    const std::vector<float> want = attend_in_steps(c, {300, 40}, 0, 2);
    ASSERT_EQ(std::ssize(want), 340 * 6 * 32);
    EXPECT_EQ(attend_in_steps(c, {7, 290, 1, 1, 1, 20, 19, 1}, 0, 2), want);
    EXPECT_EQ(attend_in_steps(c, {270, 1, 60, 2, 7}, 33, 12), want);
  }
}

/// A layer of a language model without its cache: products that wait for norms, an epilogue in place, two rows of
/// columns.
Graph mlp_graph(Numbers& n) {
  GraphBuilder g("mlp");
  const Value x = g.input("x", DType::kF32, {kTileTokens, Dim(96)});
  const Value h = rms_norm(g, x, g.weight("norm", n.weight({96})), {1e-5f});
  const Value gate = linear(g, h, g.weight("gate", n.weight({300, 96}, 0.1f)));
  const Value up = linear(g, h, g.weight("up", n.weight({300, 96}, 0.1f)));
  const Value down = linear(g, silu_mul(g, gate, up), g.weight("down", n.weight({96, 300}, 0.1f)));
  g.output("y", add(g, x, down));
  return std::move(g.finish()).value();
}

class PersistentStep : public ::testing::Test {
 protected:
  void SetUp() override {
    Numbers n;
    graph_ = mlp_graph(n);
    numbers_ = std::move(n);
    compiled_ = TileCompiled::make(graph_, sizes(8), {.multiprocessors = 4, .persistent = true});
    ASSERT_TRUE(compiled_.status.ok()) << compiled_.status.to_string();
    Numbers inputs(9);
    x_ = matrix(inputs, 5, 96);
  }
  /// The output of one step, or its error.
  Result<std::vector<float>> run(TileCompiled& c, const emu::MachineOptions& machine) {
    c.set_machine(machine);
    put(*c.runner, graph_, "x", x_);
    StepContext step;
    step.sizes = sizes(5);
    REDLINE_TRY(c.runner->step(step));
    return get(*c.runner, "y", 5 * 96);
  }
  Graph graph_;
  Numbers numbers_;
  TileCompiled compiled_;
  HostTensor x_;
};

TEST_F(PersistentStep, AnyOrderOfWarpsGivesTheSameBits) {
  const auto want = run(compiled_, {});
  ASSERT_TRUE(want.ok());
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const auto got = run(compiled_, {.seed = seed});
    ASSERT_TRUE(got.ok()) << "seed " << seed << ": " << got.status().to_string();
    ASSERT_EQ(*got, *want) << "seed " << seed;
  }
}

// A100 has three stages and no bulk copies, the cards of consumers one.
TEST_F(PersistentStep, OlderDevicesGiveTheSameBits) {
  const auto want = run(compiled_, {});
  ASSERT_TRUE(want.ok());
  for (const int stages : {3, 1})
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const auto got = run(compiled_, {.seed = seed, .has_bulk_copies = false, .ring_stages = stages});
      ASSERT_TRUE(got.ok()) << "seed " << seed << ": " << got.status().to_string();
      ASSERT_EQ(*got, *want) << stages << " stages, seed " << seed;
    }
}

// Each fault is planted at several places of a step. It is found where some order of the warps ends in an error or in
// other bits; a place may be harmless, as when a block notifies two events one after the other.
TEST_F(PersistentStep, PlantedFaultsAreFound) {
  const auto want = run(compiled_, {});
  ASSERT_TRUE(want.ok());
  struct Planted {
    emu::Fault fault;
    const char* name;
    std::vector<int> places;
  };
  const std::vector<Planted> faults = {{emu::Fault::kLostNotify, "lost notify", {0, 3, 6}},
                                       {emu::Fault::kMissingRelease, "missing release", {0, 2, 4}},
                                       {emu::Fault::kEarlyPage, "early page", {8, 12, 16}},
                                       {emu::Fault::kWrongParity, "wrong parity", {0, 7, 20}},
                                       {emu::Fault::kEarlyArrival, "early arrival", {4, 8, 12}}};
  constexpr uint64_t kOrders = 50;
  for (const Planted& planted : faults) {
    int found = 0;
    for (const int place : planted.places)
      for (uint64_t seed = 1; seed <= kOrders; ++seed) {
        // A failed step ends the runner, so each has its own.
        TileCompiled c = TileCompiled::make(graph_, sizes(8), {.multiprocessors = 2, .persistent = true});
        // One stage, which consumers read as soon as it is full.
        const bool by_lanes = planted.fault == emu::Fault::kEarlyArrival;
        const auto got = run(c, {.seed = seed,
                                 .fault = planted.fault,
                                 .fault_at = place,
                                 .has_bulk_copies = !by_lanes,
                                 .ring_stages = by_lanes ? 1 : 0});
        if (got.ok() && *got == *want) continue;
        ++found;
        break;
      }
    EXPECT_GE(found, 2) << planted.name;
  }
}

/// A mixture of five experts, of which the first ones have most of the tokens.
Graph experts_graph(Numbers& n) {
  constexpr int64_t kExperts = 5, kHidden = 32, kFeatures = 144;
  GraphBuilder g("experts");
  const Value x = g.input("x", DType::kF32, {kTileTokens, Dim(kHidden)});
  const Value logits =
      linear(g, x, g.weight("router", n.weight({kExperts, kHidden}, 0.1f)), g.weight("bias", n.weight({kExperts}, 2)));
  const Routing routing = moe_router(g, logits, {}, {.num_experts = kExperts, .experts_per_token = 2});
  std::vector<Value> gate, up, down;
  for (int64_t e = 0; e < kExperts; ++e) {
    gate.push_back(g.weight(fmt::format("gate{}", e), n.weight({kFeatures, kHidden}, 0.1f)));
    up.push_back(g.weight(fmt::format("up{}", e), n.weight({kFeatures, kHidden}, 0.1f)));
    down.push_back(g.weight(fmt::format("down{}", e), n.weight({kHidden, kFeatures}, 0.1f)));
  }
  const Value h = expert_gated_linear(g, x, routing, {gate, {}}, {up, {}}, {});
  g.output("y", expert_sum(g, expert_linear(g, h, routing, {down, {}}), routing.weights));
  return std::move(g.finish()).value();
}

// Tiles of experts go to whoever is free: by launches and in any order of the blocks to the same bits, step after step.
// A number that nobody gets is a tile that nobody computes, which the result shows.
TEST(SharedStages, AreDrawnByTicket) {
  Numbers n;
  const Graph graph = experts_graph(n);
  const HostTensor x = matrix(n, 7, 32);
  const auto run = [&](TileCompiled& c, const emu::MachineOptions& machine) -> Result<std::vector<float>> {
    c.set_machine(machine);
    put(*c.runner, graph, "x", x);
    StepContext step;
    step.sizes = sizes(7);
    REDLINE_TRY(c.runner->step(step));
    return get(*c.runner, "y", 7 * 32);
  };
  TileCompiled launches = TileCompiled::make(graph, sizes(7), {.multiprocessors = 3});
  ASSERT_TRUE(launches.status.ok()) << launches.status.to_string();
  const auto want = run(launches, {});
  ASSERT_TRUE(want.ok()) << want.status().to_string();
  TileCompiled c = TileCompiled::make(graph, sizes(7), {.multiprocessors = 3, .persistent = true});
  for (uint64_t seed = 0; seed <= 20; ++seed) {
    const auto got = run(c, {.seed = seed});
    ASSERT_TRUE(got.ok()) << "seed " << seed << ": " << got.status().to_string();
    ASSERT_EQ(*got, *want) << "seed " << seed;
  }
  // The order of a step without a seed is always the same: the first numbers of each product are tiles that have rows.
  for (const int place : {0, 1, 2}) {
    TileCompiled broken = TileCompiled::make(graph, sizes(7), {.multiprocessors = 3, .persistent = true});
    const auto got = run(broken, {.fault = emu::Fault::kLostTicket, .fault_at = place});
    EXPECT_TRUE(!got.ok() || *got != *want) << place;
  }
  // A step that is abandoned ends, wherever its blocks wait: for the router, for a number, or for weights.
  int abandoned = 0;
  for (uint64_t seed = 1; seed <= 5; ++seed)
    for (const int place : {0, 2, 4, 6}) {
      TileCompiled broken = TileCompiled::make(graph, sizes(7), {.multiprocessors = 3, .persistent = true});
      const auto got = run(broken, {.seed = seed, .fault = emu::Fault::kLostNotify, .fault_at = place});
      if (got.ok()) continue;
      ++abandoned;
      EXPECT_THAT(got.status().message(), ::testing::HasSubstr("did not end within"));
    }
  EXPECT_GT(abandoned, 0);
}

TEST_F(PersistentStep, ALostNotifyIsReportedWithItsEvent) {
  const auto got = run(compiled_, {.fault = emu::Fault::kLostNotify});
  ASSERT_FALSE(got.ok());
  EXPECT_THAT(got.status().message(), ::testing::ContainsRegex("did not end within .* s; multiprocessor [01]: "));
  EXPECT_THAT(got.status().message(), ::testing::ContainsRegex("waits for event .*: [0-9]+ of [0-9]+ notifications"));
  EXPECT_THAT(got.status().message(), ::testing::HasSubstr("has counted"));
  // The state of the device is unknown: no further step.
  EXPECT_FALSE(run(compiled_, {}).ok());
}

// Weights that never arrive: the kernel gives up, as a launch of its own and as a task, and the report names the place.
TEST_F(PersistentStep, ALostCopyIsReportedWithItsPlace) {
  if (test_device() != "emu") GTEST_SKIP() << "no fault is planted on this device";
  Numbers n;
  GraphBuilder g("product");
  const Value x = g.input("x", DType::kF32, {kTileTokens, Dim(96)});
  g.output("y", linear(g, x, g.weight("w", n.weight({96, 96}, 0.1f))));
  graph_ = std::move(g.finish()).value();
  for (const bool persistent : {false, true}) {
    TileCompiled c = TileCompiled::make(graph_, sizes(8), {.multiprocessors = 2, .persistent = persistent});
    const auto got = run(c, {.fault = emu::Fault::kLostCopy, .fault_at = 1});
    ASSERT_FALSE(got.ok());
    EXPECT_THAT(got.status().message(),
                ::testing::ContainsRegex(
                    std::string(persistent ? "multiprocessor [01]: linear #[01]" : "block [0-9]+ of linear") +
                    ": warp [0-7] waits for the copies to stage [0-3] of the ring"));
    // The state of the device is unknown: no further step.
    const auto again = run(c, {});
    ASSERT_FALSE(again.ok());
    EXPECT_THAT(again.status().message(), ::testing::HasSubstr("runs nothing further: open the model again"));
  }
  // A persistent step is repeated by launches, which do not take its report for theirs.
  TileCompiled* compiled = nullptr;
  int notices = 0;
  const auto on_notice = [&](const std::string&) {
    ++notices;
    compiled->set_machine({});
  };
  TileCompiled c =
      TileCompiled::make(graph_, sizes(8), {.multiprocessors = 2, .persistent = true, .on_notice = on_notice});
  compiled = &c;
  const auto want = run(c, {});
  ASSERT_TRUE(want.ok()) << want.status().to_string();
  const auto got = run(c, {.fault = emu::Fault::kLostCopy, .fault_at = 1});
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_EQ(*got, *want);
  EXPECT_EQ(notices, 1);
}

// With someone to tell, the step that was abandoned or refused is repeated by launches, and so are all later ones.
TEST_F(PersistentStep, LaunchesTakeItsPlace) {
  if (test_device() != "emu") GTEST_SKIP() << "no fault is planted on this device";
  TileCompiled launches = TileCompiled::make(graph_, sizes(8), {.multiprocessors = 4});
  const auto want = run(launches, {});
  ASSERT_TRUE(want.ok());
  for (const bool refuses : {false, true}) {
    std::vector<std::string> notices;
    TileCompiled c = TileCompiled::make(graph_, sizes(8),
                                        {.multiprocessors = 4,
                                         .persistent = true,
                                         .refuses_persistent = refuses,
                                         .on_notice = [&](const std::string& text) { notices.push_back(text); }});
    if (!refuses) {
      const auto whole = run(c, {});
      ASSERT_TRUE(whole.ok()) << whole.status().to_string();
      EXPECT_EQ(*whole, *want);
      EXPECT_TRUE(notices.empty());
    }
    const auto got = run(c, {.fault = emu::Fault::kLostNotify});
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    EXPECT_EQ(*got, *want);
    ASSERT_EQ(notices.size(), 1u);
    EXPECT_THAT(notices[0], ::testing::HasSubstr(refuses ? "refuses a cooperative launch of 4 blocks" : "has counted"));
    EXPECT_THAT(notices[0], ::testing::HasSubstr("all further steps are graphs of launches"));
    EXPECT_THAT(c.runner->steps_text(), ::testing::StartsWith("graphs of launches: the "));
    for (int again = 0; again < 3; ++again) {
      const auto later = run(c, {});
      ASSERT_TRUE(later.ok()) << later.status().to_string();
      EXPECT_EQ(*later, *want);
    }
    EXPECT_EQ(notices.size(), 1u);
    EXPECT_EQ(c.runner->num_graphs(), 1u);
  }
}

// A wait for more notifications than there are: it is planted in the tables of the device, so that a GPU hangs too
// (tools/device_check). The step ends by its deadline, is repeated by launches, and the device works on.
TEST(PlantedHang, EndsByTheDeadline) {
  Numbers n;
  const Graph graph = mlp_graph(n);
  const HostTensor x = matrix(n, 5, 96);
  std::vector<std::string> notices;
  TileCompiled c = TileCompiled::make(
      graph, sizes(8),
      {.multiprocessors = 4, .persistent = true, .hang_seconds = 1, .on_notice = [&](const std::string& text) {
         notices.push_back(text);
       }});
  ASSERT_TRUE(c.status.ok()) << c.status.to_string();
  if (c.runner->steps_text().starts_with("graphs")) GTEST_SKIP() << "the device has no persistent step";
  const auto run = [&](TileCompiled& compiled) -> Result<std::vector<float>> {
    put(*compiled.runner, graph, "x", x);
    StepContext step;
    step.sizes = sizes(5);
    REDLINE_TRY(compiled.runner->step(step));
    return get(*compiled.runner, "y", 5 * 96);
  };
  const auto want = run(c);
  ASSERT_TRUE(want.ok()) << want.status().to_string();
  uint8_t* const waits = TileProgram::of(*c.runner->program()).waits.data();
  tiles::ProgramTables::WaitEntry first = {};
  ASSERT_TRUE(c.device->download(&first, waits, sizeof(first)).ok());
  first.count += 1000;
  ASSERT_TRUE(c.device->upload(waits, &first, sizeof(first)).ok());
  const auto got = run(c);
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_EQ(*got, *want);
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_THAT(notices[0], ::testing::HasSubstr("did not end within 1 s"));
  EXPECT_THAT(notices[0], ::testing::HasSubstr("waits for event "));
  TileCompiled other = TileCompiled::make(graph, sizes(8), {.multiprocessors = 4, .persistent = true});
  const auto again = run(other);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(*again, *want);
}

// A driver whose queue is full holds launches up until the kernels before them have ended: the time that a hung one has
// taken is then theirs.
TEST(PlantedHang, IsReportedWhereLaunchesWait) {
  if (test_device() != "emu") GTEST_SKIP() << "the table of this device stays as it is";
  Numbers n;
  const Graph graph = mlp_graph(n);
  TileCompiled c = TileCompiled::make(graph, sizes(8), {.hang_seconds = 0.05});
  ASSERT_TRUE(c.status.ok()) << c.status.to_string();
  tiles::TileDevice& table = c.device->table();
  table.gives_up_at_once = 0;
  table.launch = [](void*, const tiles::ProgramTables* program, int32_t stage, tiles::KernelId, int32_t) -> int32_t {
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    *program->hang = {tiles::HangReport::kBarrier, 0, static_cast<uint32_t>(stage), 0, 0};
    return 0;
  };
  StepContext step;
  step.sizes = sizes(5);
  EXPECT_THAT(c.runner->step(step).message(), ::testing::HasSubstr("did not end within 0.05 s"));
}

TEST(PlantedHang, AStepThatNeverEndsSaysHowToAllowLongerOnes) {
  if (test_device() != "emu") GTEST_SKIP() << "the table of this device stays as it is";
  Numbers n;
  TileCompiled c = TileCompiled::make(mlp_graph(n), sizes(8), {.hang_seconds = 60});
  ASSERT_TRUE(c.status.ok()) << c.status.to_string();
  c.device->table().synchronize = [](void*, uint64_t) { return tiles::kNotEnded; };
  StepContext step;
  step.sizes = sizes(5);
  EXPECT_THAT(c.runner->step(step).message(), ::testing::HasSubstr("it has run for 125 s (for longer steps raise "
                                                                   "REDLINE_HANG_SECONDS; 0: no limit)"));
}

TEST(StepModes, AreParsed) {
  EXPECT_EQ(parse_step_mode("").value(), StepMode::kAuto);
  EXPECT_EQ(parse_step_mode("persistent").value(), StepMode::kPersistent);
  EXPECT_EQ(parse_step_mode("graphs").value(), StepMode::kGraphs);
  EXPECT_EQ(parse_step_mode("graph").status().code(), Code::invalid_argument);
}

// Which programs are persistent: of language models, on a device where all blocks run at the same time.
TEST(StepModes, AreChosenByProgramAndDevice) {
  Numbers n;
  const Graph mlp = mlp_graph(n), with_state = tile_attention_graph({2, 1, 16});
  WorkerTeam team(1);
  const auto choose = [&](Graph graph, StepMode mode, int persistent_blocks, int64_t tokens = 8) {
    const auto device = std::make_shared<OpenDevice>(
        emu::open_emulated_device({.multiprocessors = 4, .team = &team, .persistent_blocks = persistent_blocks}));
    SymbolValues bounds = sizes(8);
    bounds[Symbol::kTokens] = tokens;
    bounds[Symbol::kSequences] = 1;
    EXPECT_TRUE(run_passes(graph).ok());
    const auto program = compile_tiles(std::move(graph), {.bounds = bounds}, device, team);
    EXPECT_TRUE(program.ok()) << program.status().to_string();
    return choose_steps(mode, *program);
  };
  EXPECT_EQ(choose(mlp, StepMode::kAuto, 4)->persistent_rows, kPersistentRows);
  EXPECT_EQ(choose(mlp, StepMode::kPersistent, 4)->persistent_rows, kPersistentRows);
  EXPECT_EQ(choose(mlp, StepMode::kGraphs, 4)->text(), "graphs of launches: REDLINE_DEVICE_STEPS=graphs");
  EXPECT_EQ(choose(mlp, StepMode::kAuto, 3)->persistent_rows, 0);
  EXPECT_THAT(choose(mlp, StepMode::kAuto, 3)->text(),
              ::testing::HasSubstr("4 blocks would wait for one another, and 3"));
  EXPECT_THAT(choose(mlp, StepMode::kAuto, 0)->text(), ::testing::HasSubstr("no cooperative launches"));
  EXPECT_EQ(choose(mlp, StepMode::kAuto, 4, 0)->obstacle, "not a language model");
  // Only a model with states is refused: others, as encoders of text for images, have no persistent form.
  EXPECT_EQ(choose(mlp, StepMode::kPersistent, 0)->persistent_rows, 0);
  const auto refused = choose(with_state, StepMode::kPersistent, 0);
  EXPECT_EQ(refused.status().code(), Code::unsupported);
  EXPECT_THAT(refused.status().message(), ::testing::HasSubstr("REDLINE_DEVICE_STEPS=persistent: the emulated device"));
  EXPECT_EQ(choose(with_state, StepMode::kAuto, 4)->persistent_rows, kPersistentRows);
}

// Launches of like sizes become a graph when they come a second time; steps of fewer rows share it.
TEST(StepGraphs, GiveTheBitsOfLaunches) {
  Numbers n;
  const Graph graph = mlp_graph(n);
  TileCompiled c = TileCompiled::make(graph, sizes(8));
  ASSERT_TRUE(c.status.ok()) << c.status.to_string();
  const HostTensor x = matrix(n, 8, 96);
  const auto run = [&](int64_t rows) {
    put(*c.runner, graph, "x", x);
    StepContext step;
    step.sizes = sizes(rows);
    const Status status = c.runner->step(step);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return get(*c.runner, "y", rows * 96);
  };
  const std::vector<float> launched = run(6);
  EXPECT_EQ(c.runner->num_graphs(), 0u);
  EXPECT_EQ(run(6), launched);
  EXPECT_EQ(c.runner->num_graphs(), 1u);
  const std::vector<float> fewer = run(5);  // by the graph of 6 rows
  EXPECT_EQ(c.runner->num_graphs(), 1u);
  EXPECT_TRUE(std::equal(fewer.begin(), fewer.end(), launched.begin()));
  run(8);
  EXPECT_EQ(c.runner->num_graphs(), 1u);
  run(7);  // the second of at most 8 rows
  EXPECT_EQ(c.runner->num_graphs(), 2u);
}

// A program hands an address of the device to the next. The host sees its contents when it asks for them.
TEST(DeviceBuffers, BoundValuesComeToTheHostWhenItAsks) {
  GraphBuilder g("twice");
  g.output("external.out.y", scale(g, g.input("external.in.x", DType::kF32, {kTileTokens, Dim(40)}), {2}));
  TileCompiled c = TileCompiled::make(std::move(g.finish()).value(), sizes(4));
  ASSERT_TRUE(c.status.ok()) << c.status.to_string();
  constexpr int64_t kRowBytes = 40 * 4;
  auto a = c.runner->make_buffer(4 * kRowBytes), b = c.runner->make_buffer(4 * kRowBytes);
  ASSERT_TRUE(a.ok() && b.ok());
  const auto floats = [](BackendBuffer& buffer) { return reinterpret_cast<float*>(buffer.host()); };
  const auto run = [&](BackendBuffer& from, BackendBuffer& to, int64_t rows) {
    EXPECT_TRUE(c.runner->bind("external.in.x", from.address(false)));
    EXPECT_TRUE(c.runner->bind("external.out.y", to.address(true)));
    StepContext step;
    step.sizes = sizes(rows);
    const Status status = c.runner->step(step);
    EXPECT_TRUE(status.ok()) << status.to_string();
  };
  std::iota(floats(**a), floats(**a) + 160, 0.0F);
  run(**a, **b, 4);
  EXPECT_EQ(floats(**b)[159], 318);
  floats(**b)[7] = 1000;  // written by the host between two steps
  run(**b, **a, 3);
  EXPECT_EQ(floats(**a)[7], 2000);
  EXPECT_EQ(floats(**a)[119], 476);
  EXPECT_EQ(floats(**a)[120], 120) << "a row that the step did not have";
  (*a)->copy(kRowBytes, **b, 3 * kRowBytes, kRowBytes);  // row 3 of b becomes row 1 of a, on the device
  run(**a, **b, 2);
  EXPECT_EQ(floats(**b)[79], 2 * 318);
  EXPECT_FALSE(c.runner->bind("external.in.z", nullptr));
  // Memory that a step may need stays free: a step cache then has its tensors on the host.
  if (test_device() != "emu") return;
  const auto memory = c.device->memory();
  ASSERT_TRUE(memory.ok());
  constexpr int64_t kLeft = 1 << 20;
  emu::set_memory_bytes(c.device->table(), memory->total - memory->free + kLeft);
  const auto full = (*a)->make_like(kLeft - 4096);
  EXPECT_EQ(full.status().code(), Code::out_of_device_memory);
  EXPECT_THAT(full.status().message(), ::testing::ContainsRegex("tensors of a step cache take .* stay free"));
  EXPECT_TRUE((*a)->make_like(kLeft / 2).ok());
}

// A captured graph has the addresses of its first step; what the library computes reaches the one that is bound now.
TEST(DeviceBuffers, TheLibraryWritesToWhatIsBoundNow) {
  constexpr int64_t kRows = kOwnRows + 6, kOut = 20, kIn = 8;
  const testing::RandomWeight weight(DType::kBF16, kOut, kIn, 3);
  WeightSource source;
  source.view = weight.view();
  GraphBuilder g("bound");
  g.output("external.out.y", linear(g, g.input("x", DType::kF32, {kTileTokens, Dim(kIn)}), g.weight("w", source)));
  TileCompiled c =
      TileCompiled::make(std::move(g.finish()).value(), sizes(kRows), {.exact_f32 = false, .has_library = true});
  ASSERT_TRUE(c.status.ok()) << c.status.to_string();
  std::vector<std::unique_ptr<BackendBuffer>> buffers;
  for (int step = 0; step < 4; ++step) {
    auto made = c.runner->make_buffer(kRows * kOut * 4);
    ASSERT_TRUE(made.ok());
    buffers.push_back(std::move(*made));
    ASSERT_TRUE(c.runner->bind("external.out.y", buffers.back()->address(true)));
    auto* const x = static_cast<float*>(c.runner->host_input("x"));
    for (int64_t i = 0; i < kRows * kIn; ++i) x[i] = static_cast<float>(i % 7 - 3 + step);
    StepContext now;
    now.sizes = sizes(kRows);
    ASSERT_TRUE(c.runner->step(now).ok());
    const auto* const y = reinterpret_cast<const float*>(buffers.back()->host());
    for (const int64_t row : {int64_t{0}, kRows - 1}) {
      double sum = 0;
      for (int64_t k = 0; k < kIn; ++k) sum += double{x[row * kIn + k]} * double{weight.values[static_cast<size_t>(k)]};
      EXPECT_NEAR(y[row * kOut], sum, 1e-4 * (1 + std::abs(sum))) << "step " << step;  // small integers are exact in x
    }
  }
}

// Before: the program is not made. During: the step fails and has changed nothing.
TEST(TileRunnerErrors, AFullDeviceIsReportedWithItsNumbers) {
  Numbers n;
  const Graph graph = mlp_graph(n);
  const TileCompiled full = TileCompiled::make(graph, sizes(4), {.memory_bytes = 1 << 16});
  EXPECT_EQ(full.status.code(), Code::out_of_device_memory);
  EXPECT_THAT(full.status.message(),
              ::testing::ContainsRegex("weights and activations take .* GiB; of .* GiB, .* free"));

  TileCompiled c = TileCompiled::make(graph, sizes(4));
  ASSERT_TRUE(c.status.ok()) << c.status.to_string();
  const HostTensor x = matrix(n, 4, 96);
  put(*c.runner, graph, "x", x);
  StepContext step;
  step.sizes = sizes(4);
  emu::set_memory_bytes(c.device->table(), 1);
  const Status status = c.runner->step(step);
  EXPECT_EQ(status.code(), Code::out_of_device_memory);
  EXPECT_THAT(status.message(), ::testing::ContainsRegex("[0-9]+ bytes do not fit: .* of 1 are free"));
  emu::set_memory_bytes(c.device->table(), 0);
  EXPECT_TRUE(c.runner->step(step).ok());
}

TEST(TileRunnerErrors, SizesAboveTheBoundsAreRefused) {
  Numbers n;
  TileCompiled c = TileCompiled::make(mlp_graph(n), sizes(4));
  ASSERT_TRUE(c.status.ok());
  StepContext step;
  step.sizes = sizes(5);
  const Status status = c.runner->step(step);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("tokens 5"));
  step.sizes = sizes(4);
  EXPECT_TRUE(c.runner->step(step).ok());
}

class CheckProgram : public ::testing::TestWithParam<int> {};

TEST_P(CheckProgram, ProvesAScheduleAndFindsEachMissingWait) {
  Numbers n;
  TileCompiled c = TileCompiled::make(mlp_graph(n), sizes(16), {.multiprocessors = GetParam()});
  ASSERT_TRUE(c.status.ok());
  auto& program = const_cast<Program&>(*c.runner->program());
  for (const int64_t rows : {0, 1, 5, 16}) {
    const Status status = check_program(program, sizes(rows));
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  // Without any one of the waits of the schedule, two tasks are not ordered.
  int found = 0, waits = 0;
  for (std::vector<Task>& list : program.tasks)
    for (Task& task : list) {
      if (task.wait_begin == task.wait_end) continue;
      const Task kept = task;
      task.wait_end = task.wait_begin;
      ++waits;
      found += !check_program(program, sizes(16)).ok();
      task = kept;
    }
  // A task may have no work, or another one that its worker ran before has waited for the same.
  EXPECT_GT(waits, 5);
  EXPECT_GT(2 * found, waits) << found << " of " << waits;
}

TEST_P(CheckProgram, FindsWaitsThatCannotBeMet) {
  Numbers n;
  TileCompiled c = TileCompiled::make(mlp_graph(n), sizes(16), {.multiprocessors = GetParam()});
  ASSERT_TRUE(c.status.ok());
  auto& program = const_cast<Program&>(*c.runner->program());
  ++program.waits[0].count;
  EXPECT_THAT(check_program(program, sizes(4)).message(), ::testing::HasSubstr("notifications of event"));
  --program.waits[0].count;
  // The first task waits for the last event: everything after it, and so that event, never comes.
  Task& first = program.tasks[0].front();
  const auto last = static_cast<uint32_t>(program.waits.size() - 1);
  first.wait_begin = last;
  first.wait_end = last + 1;
  EXPECT_THAT(check_program(program, sizes(4)).message(), ::testing::HasSubstr("never notified"));
}

INSTANTIATE_TEST_SUITE_P(Multiprocessors, CheckProgram, ::testing::Values(4, 132));

}  // namespace
}  // namespace redline::test
