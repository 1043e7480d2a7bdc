#include "graph/hoist_invariants.h"

#include "graph/external_values.h"
#include "graph/ops/activation.h"
#include "graph/ops/add.h"
#include "graph/ops/concat.h"
#include "graph/ops/layer_norm.h"
#include "graph/ops/linear.h"
#include "graph/pass.h"
#include "runtime/executable.h"
#include "support/graph_harness.h"

namespace redline::test {
namespace {

constexpr int64_t kHoistCols = 24;

/// Three graphs in a row: a table from "time" that two of them read, and rows "x" that it modulates.
struct Chain {
  Numbers numbers{5};
  std::vector<Graph> graphs;

  Value matrix_of(GraphBuilder& g, const char* name, int64_t out, int64_t in) {
    return g.weight(name, numbers.weight({out, in}, 0.2f));
  }
  Value modulated(GraphBuilder& g, Value x, Value table) {
    return modulated_norm(g, x, {table, 0, kHoistCols, kImage});
  }
  Chain() {
    {
      GraphBuilder g("first");
      const Value x = g.input("x", DType::kF32, {kBatch * kImage, Dim(kHoistCols)});
      const Value time = g.input("time", DType::kF32, {kBatch, Dim(kHoistCols)});
      const Value conditioning =
          activation(g, linear(g, time, matrix_of(g, "a", kHoistCols, kHoistCols)), Activation::kSilu);
      const Value table = linear(g, conditioning, matrix_of(g, "b", 2 * kHoistCols, kHoistCols));
      g.output("image", modulated(g, x, table));
      g.output("carry.conditioning", conditioning);
      g.output("table", table);
      graphs.push_back(std::move(g.finish()).value());
    }
    {
      GraphBuilder g("second");
      const Value conditioning = g.input("carry.conditioning", DType::kF32, {kBatch, Dim(kHoistCols)});
      const Value image = g.input("image", DType::kF32, {kBatch * kImage, Dim(kHoistCols)});
      const Value table = linear(g, conditioning, matrix_of(g, "c", 2 * kHoistCols, kHoistCols));
      // Two tables from one by ops that cost next to nothing.
      const Value row = g.weight("row", numbers.weight({2 * kHoistCols})),
                  other = g.weight("other", numbers.weight({2 * kHoistCols}));
      g.output("image", modulated(g, modulated(g, image, add_row(g, table, row)), add_row(g, table, other)));
      graphs.push_back(std::move(g.finish()).value());
    }
    {
      GraphBuilder g("third");
      const Value image = g.input("image", DType::kF32, {kBatch * kImage, Dim(kHoistCols)});
      const Value table = g.input("table", DType::kF32, {kBatch, Dim(2 * kHoistCols)});
      const Value time = g.input("time", DType::kF32, {kBatch, Dim(kHoistCols)});
      // Wider, of what came from outside: not worth keeping.
      g.output("y", modulated(g, modulated(g, image, table), concat_cols(g, time, time)));
      graphs.push_back(std::move(g.finish()).value());
    }
  }
  std::vector<Graph*> pointers() {
    std::vector<Graph*> p;
    for (Graph& g : graphs) p.push_back(&g);
    return p;
  }
};

std::vector<std::string> names_of(const Graph& graph, const std::vector<ValueId>& ids) {
  std::vector<std::string> names;
  for (ValueId id : ids) names.push_back(graph.value(id).name);
  return names;
}

using Tensors = std::map<std::string, HostTensor>;

/// Outputs of the graphs one after the other, by name; later ones replace earlier ones.
Tensors run_chain(const std::vector<Graph>& graphs, Tensors values, const SymbolValues& now) {
  for (const Graph& graph : graphs) {
    Tensors inputs;
    for (ValueId id : graph.inputs) inputs[graph.value(id).name] = values.at(graph.value(id).name);
    auto made = Interpreter::make(graph)->run(inputs, now);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    for (auto& [name, tensor] : *made) values[name] = std::move(tensor);
  }
  return values;
}

TEST(HoistedGraphs, TheGraphsTogetherSayWhatTheySaid) {
  Chain chain;
  const SymbolValues now = image_sizes(2, 3);
  Numbers in(9);
  const Tensors given = {{"x", matrix(in, 6, kHoistCols)}, {"time", matrix(in, 2, kHoistCols)}};
  const Tensors want = run_chain(chain.graphs, given, now);
  auto split = hoist_invariants(chain.pointers(), {.name = "time", .constants = {"time"}, .sizes = now});
  ASSERT_TRUE(split.ok()) << split.status().to_string();
  std::vector<Graph> all = chain.graphs;
  all.insert(all.begin(), split->once);
  const Tensors got = run_chain(all, given, now);
  EXPECT_EQ(want.at("y").data, got.at("y").data);
  EXPECT_EQ(want.at("table").data, got.at(split->moved_outputs.at("table")).data);
}

TEST(HoistedGraphs, ProductsGoAndWhatOnlyCostsMemoryStays) {
  Chain chain;
  auto split = hoist_invariants(chain.pointers(), {.name = "t", .constants = {"time"}, .sizes = image_sizes(1, 4)});
  ASSERT_TRUE(split.ok()) << split.status().to_string();
  EXPECT_EQ(count(split->once, kLinear), 3);
  EXPECT_EQ(count(split->once, kActivation), 1);
  EXPECT_EQ(names_of(split->once, split->once.outputs), (std::vector<std::string>{"external.t.0", "external.t.1"}));
  EXPECT_EQ(names_of(split->once, split->once.inputs), std::vector<std::string>{"time"});
  for (const Graph& graph : chain.graphs) EXPECT_EQ(count(graph, kLinear), 0) << graph.to_string();
  // The two sums read one table, which is half of what they make.
  EXPECT_EQ(count(chain.graphs[1], kAddRow), 2);
  EXPECT_EQ(count(chain.graphs[2], kConcatCols), 1);
  // The first graph's table is the third's input, kept once; nobody wants the conditioning any more.
  EXPECT_EQ(split->moved_outputs, (std::map<std::string, std::string>{{"table", "external.t.0"}}));
  EXPECT_EQ(names_of(chain.graphs[0], chain.graphs[0].inputs), (std::vector<std::string>{"x", "external.t.0"}));
  EXPECT_EQ(names_of(chain.graphs[0], chain.graphs[0].outputs), std::vector<std::string>{"image"});
  EXPECT_EQ(names_of(chain.graphs[1], chain.graphs[1].inputs), (std::vector<std::string>{"image", "external.t.1"}));
  EXPECT_EQ(names_of(chain.graphs[2], chain.graphs[2].inputs),
            (std::vector<std::string>{"image", "external.t.0", "time"}));
}

TEST(HoistedGraphs, NothingConstantLeavesTheGraphsAlone) {
  Chain chain;
  const std::string before = chain.graphs[1].to_string();
  auto split = hoist_invariants(chain.pointers(), {.name = "t", .constants = {"text"}, .sizes = image_sizes(1, 4)});
  ASSERT_TRUE(split.ok()) << split.status().to_string();
  EXPECT_TRUE(split->once.ops.empty());
  EXPECT_EQ(chain.graphs[1].to_string(), before);
}

TEST(HoistedGraphs, BoundValuesLieWhereTheyAreBound) {
  // Compiled and interpreted: the invariants' graph writes to the given rows, the others read any of them.
  for (const bool interpret : {false, true}) {
    Chain chain;
    const SymbolValues bounds = image_sizes(4, 5), one = image_sizes(1, 5);
    auto split = hoist_invariants(chain.pointers(), {.name = "t", .constants = {"time"}, .sizes = bounds});
    ASSERT_TRUE(split.ok()) << split.status().to_string();
    Numbers in(2);
    const HostTensor x = matrix(in, 5, kHoistCols), time = matrix(in, 4, kHoistCols);
    RuntimeResources runtime(2, *cpu_kernels().value());
    ExecutableOptions options;
    options.interpret = interpret;
    options.bounds = bounds;
    options.exact_f32 = true;
    const Graph first = chain.graphs[0];
    auto once = Executable::make(split->once, options, runtime), step = Executable::make(first, options, runtime);
    ASSERT_TRUE(once.ok() && step.ok());
    std::vector<float> tables(4 * 2 * kHoistCols), others(tables.size());
    once->bind("external.t.0", tables.data());
    once->bind("external.t.1", others.data());
    std::copy(time.data.begin(), time.data.end(), once->input("time"));
    ASSERT_TRUE(once->run(image_sizes(4, 5)).ok());
    for (const int64_t row : {3, 0, 2}) {
      step->bind("external.t.0", tables.data() + row * 2 * kHoistCols);
      std::copy(x.data.begin(), x.data.end(), step->input("x"));
      ASSERT_TRUE(step->run(one).ok());
      Chain whole;
      const HostTensor own = {{1, kHoistCols}, {time.row(row), time.row(row) + kHoistCols}};
      const HostTensor want = run_chain({whole.graphs[0]}, {{"x", x}, {"time", own}}, one).at("image");
      for (size_t i = 0; i < want.data.size(); ++i)
        // Sums of 24 products of float32, twice, through a norm: some 1e-6 of values of unit size.
        ASSERT_NEAR(step->output("image")[i], want.data[i], 2e-5) << "row " << row << ", element " << i;
    }
    if (interpret) continue;
    for (const ArenaBlock& block : step->program()->arena_plan.blocks) {
      if (block.value != first.find_input("external.t.0")) continue;
      EXPECT_EQ(block.bytes, 64) << "the arena has room for it";
    }
  }
}

}  // namespace
}  // namespace redline::test
