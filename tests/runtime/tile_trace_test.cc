// The timeline of a tile device: tasks of a persistent step by multiprocessor, and launches.
#include "backends/tiles/tile_trace.h"

#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "graph/ops/add.h"
#include "graph/ops/linear.h"
#include "graph/ops/rms_norm.h"
#include "support/random_weight.h"
#include "support/temporary_folder.h"
#include "support/tile_harness.h"

namespace redline::test {
namespace {

constexpr int kMultiprocessors = 3;
constexpr int64_t kWidth = 96;

/// Two blocks of a norm, a product, and a product with a residual.
Graph trace_graph() {
  static const testing::RandomWeight first(DType::kBF16, kWidth, kWidth, 1), second(DType::kQ8_0, kWidth, kWidth, 2);
  static const std::vector<float> norm(kWidth, 1.0f);
  GraphBuilder g("traced");
  Value x = g.input("x", DType::kF32, {Symbol::kTokens, Dim(kWidth)});
  for (int i = 0; i < 2; ++i) {
    WeightSource scale, a, b;
    scale.view = {DType::kF32, {kWidth}, norm.data()};
    a.view = first.view();
    b.view = second.view();
    const std::string at = fmt::format("{}.", i);
    g.set_scope(at + "a");  // stages are found by their names
    const Value y = linear(g, rms_norm(g, x, g.weight(at + "norm", scale), {}), g.weight(at + "a", a));
    g.set_scope(at + "b");
    x = add(g, x, linear(g, y, g.weight(at + "b", b)));
  }
  g.output("y", x);
  return std::move(g.finish()).value();
}

SymbolValues rows_of(int64_t rows) {
  SymbolValues sizes;
  sizes[Symbol::kTokens] = rows;
  return sizes;
}

struct Slice {
  std::string name;
  double begin, end;  // microseconds
  int64_t tile, step;
};

/// The slices of a timeline, in order of their begin, by process and lane.
std::map<std::string, std::vector<Slice>> slices_of(const Timeline& timeline) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/trace.json";
  EXPECT_TRUE(timeline.write(path).ok());
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  const auto json = nlohmann::json::parse(text.str(), nullptr, false);
  std::map<int, std::string> processes;
  std::map<std::pair<int, int>, std::string> lanes;
  std::map<std::string, std::vector<Slice>> slices;
  for (const auto& event : json["traceEvents"]) {
    if (event["name"] == "process_name") processes[event["pid"]] = event["args"]["name"];
    if (event["name"] == "thread_name") {
      const std::string name = processes[event["pid"]] + "/" + event["args"]["name"].get<std::string>();
      lanes[{event["pid"], event["tid"]}] = name;
      slices[name];
    }
    if (event["ph"] != "X") continue;
    Slice slice{event["name"], event["ts"], event["ts"], -1, -1};
    slice.end += event["dur"].get<double>();
    if (slice.name != "wait") {
      slice.step = event["args"]["step"];
      if (event["args"].contains("tile")) slice.tile = event["args"]["tile"];
    }
    slices[lanes[{event["pid"], event["tid"]}]].push_back(slice);
  }
  for (auto& [name, all] : slices)
    std::stable_sort(all.begin(), all.end(), [](const Slice& a, const Slice& b) { return a.begin < b.begin; });
  return slices;
}

/// Times are written with three decimals.
constexpr double kRounding = 0.002;

std::vector<float> run_steps(TileCompiled& c, const Graph& graph, int64_t rows, int steps) {
  Numbers numbers(3);
  const HostTensor x = matrix(numbers, rows, kWidth);
  StepContext step;
  step.sizes = rows_of(rows);
  for (int i = 0; i < steps; ++i) {
    put(*c.runner, graph, "x", x);
    const Status status = c.runner->step(step);
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  return get(*c.runner, "y", rows * kWidth);
}

TEST(TileTrace, APersistentStepHasALaneForEachMultiprocessor) {
  const Graph graph = trace_graph();
  Timeline timeline(2, 4096);
  TileCompiled plain = TileCompiled::make(graph, rows_of(8), {.multiprocessors = kMultiprocessors, .persistent = true});
  TileCompiled c = TileCompiled::make(graph, rows_of(8),
                                      {.multiprocessors = kMultiprocessors, .persistent = true, .timeline = &timeline});
  ASSERT_TRUE(c.status.ok()) << c.status.to_string();
  constexpr int kSteps = 3;
  EXPECT_EQ(run_steps(c, graph, 5, kSteps), run_steps(plain, graph, 5, kSteps));
  const Program& program = *c.runner->program();
  if (program.workers != kMultiprocessors) GTEST_SKIP() << "a device of its own number of multiprocessors";
  auto slices = slices_of(timeline);
  ASSERT_EQ(slices.size(), 2u + kMultiprocessors);
  EXPECT_TRUE(slices["redline/worker 0"].empty());
  std::map<std::tuple<std::string, int64_t, int64_t>, Slice> tasks;  // by stage, tile and step
  size_t waits = 0;
  for (int l = 0; l < kMultiprocessors; ++l) {
    const auto& lane = slices[fmt::format("{}/SM {}", test_device(), l)];
    for (size_t i = 0; i < lane.size(); ++i) {
      EXPECT_LE(lane[i].begin, lane[i].end);
      if (i > 0) {
        EXPECT_GE(lane[i].begin, lane[i - 1].end - kRounding);
      }
      if (lane[i].name != "wait") {
        EXPECT_TRUE(tasks.emplace(std::tuple(lane[i].name, lane[i].tile, lane[i].step), lane[i]).second)
            << lane[i].name << " tile " << lane[i].tile << " step " << lane[i].step << " ran twice";
        continue;
      }
      ++waits;
      ASSERT_LT(i + 1, lane.size()) << "a wait is for a task";
      EXPECT_NE(lane[i + 1].name, "wait");
      EXPECT_NEAR(lane[i].end, lane[i + 1].begin, kRounding);
    }
  }
  EXPECT_GT(waits, 0u);
  size_t in_lists = 0;
  for (const auto& list : program.tasks) in_lists += list.size();
  EXPECT_EQ(tasks.size(), in_lists * kSteps);
  // Every task is there, and begins when enough of the tasks that it waits for have ended.
  for (int64_t step = 1; step <= kSteps; ++step) {
    const auto slice_of = [&](const Task& task) {
      return tasks.find(std::tuple(program.stages[task.stage].name, int64_t{task.index}, step));
    };
    for (const auto& list : program.tasks)
      for (const Task& task : list) {
        const auto found = slice_of(task);
        ASSERT_NE(found, tasks.end()) << program.stages[task.stage].name << " tile " << task.index;
        for (uint32_t w = task.wait_begin; w < task.wait_end; ++w) {
          uint32_t ended = 0;
          for (const auto& others : program.tasks)
            for (const Task& other : others)
              for (uint32_t n = other.notify_begin; n < other.notify_end; ++n)
                ended += program.notifies[n] == program.waits[w].event &&
                         slice_of(other)->second.end <= found->second.begin + kRounding;
          EXPECT_GE(ended, program.waits[w].count) << program.stages[task.stage].name << " tile " << task.index;
        }
      }
  }
  EXPECT_EQ(timeline.dropped(), 0);
}

// The third step is a graph that the second has captured.
TEST(TileTrace, LaunchesHaveOneLane) {
  const Graph graph = trace_graph();
  Timeline timeline(1, 4096);
  TileCompiled c = TileCompiled::make(graph, rows_of(8), {.multiprocessors = kMultiprocessors, .timeline = &timeline});
  ASSERT_TRUE(c.status.ok()) << c.status.to_string();
  constexpr int kSteps = 3;
  run_steps(c, graph, 5, kSteps);
  EXPECT_EQ(c.runner->num_graphs(), 1u);
  auto slices = slices_of(timeline);
  ASSERT_EQ(slices.size(), 2u);
  const auto& lane = slices[test_device() + "/stream"];
  const Program& program = *c.runner->program();
  ASSERT_EQ(lane.size(), program.stages.size() * kSteps);
  for (size_t i = 0; i < lane.size(); ++i) {
    EXPECT_EQ(lane[i].name, program.stages[i % program.stages.size()].name);
    EXPECT_EQ(lane[i].step, static_cast<int64_t>(i / program.stages.size()) + 1);
    EXPECT_EQ(lane[i].tile, -1) << "a launch is all tiles";
    EXPECT_LE(lane[i].begin, lane[i].end);
    if (i > 0) {
      EXPECT_GE(lane[i].begin, lane[i - 1].end - kRounding);
    }
  }
}

// No kernel of ours times a product of the library: it lasts until the next stage.
TEST(TileTrace, AProductOfTheLibraryLastsUntilTheNextStage) {
  if (test_device() != "emu") GTEST_SKIP() << "the device has its own library, or none";
  const testing::RandomWeight weight(DType::kBF16, kWidth, kWidth, 1);
  GraphBuilder g("by_library");
  WeightSource first, second;
  first.view = second.view = weight.view();
  const Value x = g.input("x", DType::kF32, {Symbol::kTokens, Dim(kWidth)});
  g.output("y", linear(g, linear(g, x, g.weight("first", first)), g.weight("second", second)));
  const Graph graph = std::move(g.finish()).value();
  Timeline timeline(1, 4096);
  constexpr int64_t kRows = 300;
  TileCompiled c = TileCompiled::make(
      graph, rows_of(kRows),
      {.exact_f32 = false, .multiprocessors = kMultiprocessors, .has_library = true, .timeline = &timeline});
  ASSERT_TRUE(c.status.ok()) << c.status.to_string();
  run_steps(c, graph, kRows, 1);
  EXPECT_EQ(c.runner->num_kept_weights(), 2u);
  const auto lane = slices_of(timeline)["emu/stream"];
  ASSERT_EQ(lane.size(), 2u);
  EXPECT_NEAR(lane[0].end, lane[1].begin, kRounding);
}

TEST(TileTrace, AFullTimelineCountsWhatItDropped) {
  const Graph graph = trace_graph();
  Timeline timeline(1, 4);
  TileCompiled c = TileCompiled::make(graph, rows_of(8), {.persistent = true, .timeline = &timeline});
  run_steps(c, graph, 5, 2);
  int64_t dropped = 0;
  for (const auto& list : c.runner->program()->tasks) dropped += std::max<int64_t>(0, 2 * std::ssize(list) - 4);
  EXPECT_EQ(timeline.dropped(), dropped);
}

}  // namespace
}  // namespace redline::test
