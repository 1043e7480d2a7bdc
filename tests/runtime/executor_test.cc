#include "backends/cpu/executor.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <new>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "graph/ops/add.h"
#include "graph/ops/group_norm.h"
#include "graph/ops/linear.h"
#include "graph/ops/rms_norm.h"
#include "graph/ops/silu_mul.h"
#include "support/graph_harness.h"
#include "support/image_sizes.h"

// Counts every allocation of the test program while a step runs: workers included.
static std::atomic<int64_t> g_allocations{0};
// Not inlined: GCC would otherwise pair the new of one translation unit with the free of another and warn.
[[gnu::noinline]] void* operator new(size_t bytes) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(bytes ? bytes : 1)) return p;
  throw std::bad_alloc();
}
// std::stable_sort asks this way; left to a sanitizer's runtime it would come from another heap than free() below.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes ? bytes : 1);
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace redline::test {
namespace {

// A few layers of the kind that models are made of.
Graph layers(Numbers& n, int count) {
  GraphBuilder g("layers");
  Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(64)});
  for (int i = 0; i < count; ++i) {
    const Value h = rms_norm(g, x, g.weight("norm", n.weight({64})), {});
    const Value gate = linear(g, h, g.weight("gate", n.weight({176, 64}, 0.1f)));
    const Value up = linear(g, h, g.weight("up", n.weight({176, 64}, 0.1f)));
    x = add(g, x, linear(g, silu_mul(g, gate, up), g.weight("down", n.weight({64, 176}, 0.1f))));
  }
  g.output("y", x);
  return std::move(g.finish()).value();
}

Status run_steps(Compiled& c, int steps, int64_t tokens) {
  StepContext step;
  step.sizes = sizes(tokens);
  for (int i = 0; i < steps; ++i) {
    Numbers in(11);
    c.put("x", matrix(in, tokens, 64));
    REDLINE_TRY(c.executor->step(step));
  }
  return {};
}

}  // namespace

TEST(Executor, ManyStepsOnManyWorkersGiveTheSameBits) {
  std::vector<float> first;
  for (int workers : {1, 2, 3, 8}) {
    Numbers n(2);
    Compiled c = Compiled::make(layers(n, 3), workers, sizes(40));
    for (int64_t tokens : {1, 40, 7, 1}) ASSERT_TRUE(run_steps(c, 3, tokens).ok());
    ASSERT_TRUE(run_steps(c, 40, 13).ok());
    const std::vector<float> y = c.get("y", 13 * 64);
    if (first.empty()) first = y;
    EXPECT_EQ(first, y) << workers;
  }
}

TEST(Executor, ProgramsOfATeamShareItsScratch) {
  Numbers n(2);
  Compiled c = Compiled::make(layers(n, 3), 2, sizes(16));
  ASSERT_TRUE(run_steps(c, 1, 16).ok());
  const std::vector<float> y = c.get("y", 16 * 64);
  // Another program asks for more: the memory moves, and comes back full of something else.
  constexpr int64_t kMore = int64_t{9} << 20;
  auto scratch = c.team->scratch(kMore);
  ASSERT_TRUE(scratch.ok()) << scratch.status().to_string();
  std::memset(*scratch, 0xff, 2 * kMore);
  EXPECT_EQ(*c.team->scratch(kMore), *scratch) << "as much again moved it";
  EXPECT_EQ(*c.team->scratch(1), *scratch) << "less moved it";
  ASSERT_TRUE(run_steps(c, 1, 16).ok());
  EXPECT_EQ(c.get("y", 16 * 64), y);
  EXPECT_EQ(c.team->scratch(int64_t{1} << 60).status().code(), Code::out_of_memory);
}

TEST(Executor, AStepGivesWayBetweenItsTasks) {
  Numbers n(2);
  for (const int workers : {1, 2, 3}) {
    Numbers same = n;
    Compiled c = Compiled::make(layers(same, 6), workers, sizes(16));
    ASSERT_TRUE(run_steps(c, 2, 16).ok());
    const std::vector<float> want = c.get("y", 16 * 64);
    FairMutex turns;
    ExecutorOptions options;
    options.turns = &turns;
    options.slice_ms = 0;
    Numbers again = n;
    Compiled paused = Compiled::make(layers(again, 6), workers, sizes(16), {}, options);
    turns.lock();
    int64_t others = 0;
    std::atomic<bool> is_done{false};
    std::thread other([&] {
      while (!is_done) {
        const std::lock_guard lock(turns);
        std::memset(paused.team->scratch(1 << 20).value(), 0xff, 1 << 20);
        ++others;
      }
    });
    while (!turns.has_waiters()) std::this_thread::yield();
    EXPECT_TRUE(run_steps(paused, 2, 16).ok());
    is_done = true;
    EXPECT_GE(others, 1);
    turns.unlock();
    other.join();
    EXPECT_EQ(paused.get("y", 16 * 64), want) << workers;
  }
}

TEST(Executor, ScratchThatIsHardlyTouchedTakesLittle) {
  WorkerTeam team(2);
  constexpr int64_t kBytes = int64_t{8} << 20, kAll = 2 * kBytes;
  auto scratch = team.scratch(kBytes);
  ASSERT_TRUE(scratch.ok()) << scratch.status().to_string();
  const auto resident_bytes = [&] {
    const int64_t page = sysconf(_SC_PAGESIZE);
    std::vector<unsigned char> flags(static_cast<size_t>(kAll / page));
    EXPECT_EQ(mincore(*scratch, kAll, flags.data()), 0);
    return page * std::count_if(flags.begin(), flags.end(), [](unsigned char f) { return (f & 1) != 0; });
  };
  for (int64_t at = 0; at < kAll; at += int64_t{1} << 20) (*scratch)[at] = 1;
  for (int call = 0; call < 100; ++call) EXPECT_EQ(*team.scratch(kBytes), *scratch);
  // 16 places of a page, of which no system that this runs on has larger ones than 64 KiB.
  EXPECT_LE(resident_bytes(), int64_t{1} << 20);
  // Filled it may have other pages; it stays where it is and what it is.
  std::memset(*scratch, 0x5a, kAll);
  for (int call = 0; call < 100; ++call) EXPECT_EQ(*team.scratch(kBytes), *scratch);
  EXPECT_TRUE(std::all_of(*scratch, *scratch + kAll, [](uint8_t byte) { return byte == 0x5a; }));
}

TEST(Executor, MemoryReuseChangesNoBit) {
  std::vector<float> results[2];
  int64_t bytes[2];
  for (int reuse = 0; reuse < 2; ++reuse) {
    Numbers n(2);
    CpuCompileOptions options;
    options.reuse_memory = reuse;
    Compiled c = Compiled::make(layers(n, 4), 2, sizes(16), options);
    ASSERT_TRUE(run_steps(c, 2, 16).ok());
    results[reuse] = c.get("y", 16 * 64);
    bytes[reuse] = c.program->arena_plan.bytes;
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_LT(bytes[1] * 2, bytes[0]);
}

TEST(Executor, AStepAllocatesNothing) {
  Numbers n(2);
  Compiled c = Compiled::make(layers(n, 3), 3, sizes(16));
  ASSERT_TRUE(run_steps(c, 1, 16).ok());
  StepContext step;
  for (int64_t tokens : {1, 16, 5}) {
    step.sizes = sizes(tokens);
    const int64_t before = g_allocations.load();
    const Status status = c.executor->step(step);
    const int64_t after = g_allocations.load();
    ASSERT_TRUE(status.ok());
    EXPECT_EQ(after, before) << tokens << " tokens";
  }
}

TEST(Executor, ASizeAboveItsBoundIsRefused) {
  Numbers n(2);
  Compiled c = Compiled::make(layers(n, 1), 1, sizes(8));
  StepContext step;
  step.sizes = sizes(9);
  const Status status = c.executor->step(step);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_EQ(status.message(), "tokens is 9 in this step, the program was compiled for at most 8");
}

TEST(Executor, DeadlockReportsWaits) {
  Numbers n(2);
  ExecutorOptions run;
  run.hang_seconds = 0.2;
  Compiled c = Compiled::make(layers(n, 1), 2, sizes(8), {}, run);
  // One notification lost: what a wrong count or a crashed kernel would look like.
  for (auto& list : c.program->tasks)
    for (Task& task : list)
      if (c.program->stages[task.stage].op == "gated_linear") task.notify_end = task.notify_begin;
  StepContext step;
  step.sizes = sizes(8);
  const Status status = c.executor->step(step);
  EXPECT_EQ(status.code(), Code::internal);
  EXPECT_NE(status.message().find("waits for silu_mul"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("worker 1: "), std::string::npos) << status.message();
  EXPECT_EQ(c.executor->step(step).code(), Code::internal);  // and it says so from then on, at once
}

TEST(Executor, AKernelThatDoesNotComeBackIsNamedWhileItIsStuck) {
  Numbers n(2);
  ExecutorOptions run;
  run.hang_seconds = 0.1;
  Compiled c = Compiled::make(layers(n, 1), 2, sizes(8), {}, run);
  static Executor* executor;
  executor = c.executor.get();
  for (CpuStage& stage : c.code().stages)
    if (stage.plan->op == "rms_norm")
      stage.run = [](const CpuStage&, const Tile& tile, const StepContext&, WorkerContext&) {
        while (tile.index == 0 && !executor->gave_up()) std::this_thread::yield();
      };
  ::testing::internal::CaptureStderr();
  StepContext step;
  step.sizes = sizes(8);
  const Status status = c.executor->step(step);
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(status.code(), Code::internal);
  // The other worker may have stolen it.
  EXPECT_TRUE(text.find("rms_norm tile 0: running") != std::string::npos ||
              text.find("running for a neighbour rms_norm tile 0") != std::string::npos)
      << text;
}

// The only worker, or the last one of a step: nobody waits for it.
TEST(Executor, AWatchdogSeesWhatNoWorkerWaitsFor) {
  for (const int workers : {1, 2}) {
    Numbers n(2);
    static StepWatchdog* watchdog;
    StepWatchdog own;
    watchdog = &own;
    ExecutorOptions run;
    run.hang_seconds = 0.1;
    run.watchdog = &own;
    Compiled c = Compiled::make(layers(n, 1), workers, sizes(8), {}, run);
    StepContext step;
    step.sizes = sizes(8);
    EXPECT_TRUE(c.executor->step(step).ok());
    EXPECT_FALSE(own.is_stalled());
    CpuStage& last = c.code().stages.back();
    last.run = [](const CpuStage&, const Tile& tile, const StepContext&, WorkerContext&) {
      while (tile.index == 0 && !watchdog->is_stalled()) std::this_thread::yield();
    };
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(c.executor->step(step).ok());  // it came back after all
    const std::string text = ::testing::internal::GetCapturedStderr();
    EXPECT_FALSE(own.is_stalled());
    EXPECT_NE(text.find("no progress for 0.1 s"), std::string::npos) << text;
    EXPECT_NE(text.find(last.plan->name + " tile 0"), std::string::npos) << text;
    EXPECT_NE(text.find("worker 0: "), std::string::npos) << text;
  }
}

TEST(Executor, WorkPartitionsRunInEveryStepAndEmptyTilesInNone) {
  Numbers n(2);
  const Dim batch = Symbol::kBatch, height = testing::kHeight, width = testing::kWidth;
  GraphBuilder g("norm");
  const Value x = g.input("x", DType::kF32, {batch * height * width, 4});
  g.output("y", group_norm(g, {x, height, width}, batch, g.weight("w", n.weight({4})), g.weight("b", n.weight({4})),
                           {2, 1e-5f, false}));
  SymbolValues bounds;
  bounds[Symbol::kBatch] = 2;
  bounds[testing::kHeight] = bounds[testing::kWidth] = 3;
  constexpr int kWorkers = 5;
  Compiled c = Compiled::make(std::move(g.finish()).value(), kWorkers, bounds);
  static std::atomic<int> work, tiles;
  int stages = 0;
  for (CpuStage& stage : c.code().stages) {
    const bool is_work = stage.plan->grid.kind == TaskGrid::Kind::kWork;
    stages += is_work ? 1 : 10;
    stage.run = is_work ? [](const CpuStage&, const Tile&, const StepContext&, WorkerContext&) { ++work; }
                        : [](const CpuStage&, const Tile&, const StepContext&, WorkerContext&) { ++tiles; };
  }
  ASSERT_EQ(stages, 11) << "the sums are work partitions, the norm has rows";
  for (int64_t items : {0, 1, 2}) {  // 0, 2 and 4 rows: fewer than parts
    StepContext step;
    step.sizes[Symbol::kBatch] = items;
    step.sizes[testing::kHeight] = 1;
    step.sizes[testing::kWidth] = 2;
    work = tiles = 0;
    ASSERT_TRUE(c.executor->step(step).ok());
    EXPECT_EQ(work, kWorkers);
    EXPECT_EQ(tiles, 2 * items);
  }
}

TEST(Executor, WhoWaitsTakesWhatANeighbourHasNotBegun) {
  for (int workers : {2, 3}) {
    Numbers n(2);
    GraphBuilder g("one product");
    const Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(64)});
    g.output("y", linear(g, x, g.weight("weight", n.weight({12288, 64}))));
    ExecutorOptions run;
    run.hang_seconds = 20;
    Compiled c = Compiled::make(std::move(g.finish()).value(), workers, sizes(8), {}, run);
    // The first task ends only when all others of its stage have: those in its own worker's list too, which others run.
    static std::atomic<int> others;
    static Executor* executor;
    executor = c.executor.get();
    int tasks = 0;
    for (CpuStage& stage : c.code().stages) {
      if (stage.plan->op != "linear") continue;
      tasks = stage.plan->grid.num_tasks();
      stage.run = [](const CpuStage& own, const Tile& tile, const StepContext&, WorkerContext&) {
        others += tile.index > 0;
        while (tile.index == 0 && others < own.plan->grid.num_tasks() - 1 && !executor->gave_up())
          std::this_thread::yield();
      };
    }
    ASSERT_GE(tasks, 2 * workers) << "worker 0 has one task of this stage: nothing to take";
    StepContext step;
    step.sizes = sizes(8);
    for (int steps = 1; steps <= 3; ++steps) {
      others = 0;
      const Status status = c.executor->step(step);
      ASSERT_TRUE(status.ok()) << status.to_string();
      EXPECT_EQ(others, tasks - 1) << "every task runs once";
    }
  }
}

TEST(Executor, TheTimelineIsJsonWithASliceForEveryTask) {
  Numbers n(2);
  Timeline timeline(2, 4096);
  ExecutorOptions run;
  run.timeline = &timeline;
  Compiled c = Compiled::make(layers(n, 2), 2, sizes(8), {}, run);
  ASSERT_TRUE(run_steps(c, 3, 8).ok());
  const std::string path = ::testing::TempDir() + "redline_timeline.json";
  ASSERT_TRUE(timeline.write(path).ok());
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  const auto json = nlohmann::json::parse(text.str(), nullptr, false);
  ASSERT_TRUE(json.is_object());
  size_t tasks = 0, slices = 0;
  for (const auto& list : c.program->tasks) tasks += list.size();
  for (const auto& event : json["traceEvents"]) slices += event["ph"] == "X" && event["name"] != "wait";
  EXPECT_EQ(slices, tasks * 3);
  EXPECT_EQ(timeline.dropped(), 0);
  EXPECT_EQ(timeline.write("/nowhere/at/all.json").code(), Code::io);
}

TEST(Executor, AFullTimelineCountsWhatItDropped) {
  Numbers n(2);
  Timeline timeline(1, 4);
  ExecutorOptions run;
  run.timeline = &timeline;
  Compiled c = Compiled::make(layers(n, 1), 1, sizes(8), {}, run);
  ASSERT_TRUE(run_steps(c, 1, 8).ok());
  EXPECT_EQ(timeline.dropped(), static_cast<int64_t>(c.program->tasks[0].size()) - 4);
}

}  // namespace redline::test
