// The events and the arena of random programs, run in random orders by a simulated machine: no task may start before
// what it reads is written, or write over what others still need.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "graph/planning.h"
#include "support/graph_harness.h"

namespace redline::test {
namespace {

struct RandomProgram {
  Graph graph;
  Program program;
};

// Stages that read one or two earlier values, with random tilings and ways of reading.
RandomProgram make_random(uint64_t seed, bool reuse) {
  std::mt19937_64 random(seed);
  auto below = [&](int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random); };
  RandomProgram r;
  r.program.workers = static_cast<int>(1 + below(4));
  r.program.bounds = sizes(64);
  r.graph.values.push_back({"in", DType::kF32, {Dim(Symbol::kTokens), Dim(48)}, ValueKind::kInput, {}});
  r.graph.inputs = {0};
  const int64_t num_stages = 2 + below(14);
  for (int64_t s = 0; s < num_stages; ++s) {
    const auto id = static_cast<ValueId>(r.graph.values.size());
    r.graph.values.push_back(
        {fmt::format("v{}", id), DType::kF32, {Dim(Symbol::kTokens), Dim(48)}, ValueKind::kComputed, {}});
    StagePlan stage;
    stage.name = fmt::format("s{}", s);
    stage.rows = Dim(Symbol::kTokens);
    stage.cols = 48;
    if (below(2)) stage.row_tiles = static_cast<int>(1 + below(4));
    stage.col_begin = LowerContext::cut_columns(48, 8, static_cast<int>(1 + below(6)));
    const int64_t reads = 1 + below(2);
    for (int64_t k = 0; k < reads; ++k) {
      const auto value = static_cast<ValueId>(std::max<int64_t>(0, id - 1 - below(3)));
      stage.reads.push_back({value, static_cast<Reads>(below(3))});
    }
    if (below(2)) stage.in_place_of = stage.reads[0].value;  // a wish: refused when the stage reads it elsewhere too
    stage.writes = {id};
    r.program.stages.push_back(std::move(stage));
  }
  r.graph.outputs = {static_cast<ValueId>(r.graph.values.size()) - 1};
  r.program.arena_plan = plan_arena(r.graph, r.program.stages, r.program.bounds, reuse);
  return r;
}

bool rows_meet(const StagePlan& a, int row_a, const StagePlan& b, int row_b) {
  return a.row_tiles != b.row_tiles || row_a == row_b;  // equal fractions of the same rows, or unknown: all
}

// What is wrong with running `task` now, given which tasks are done; "" when nothing is.
std::string hazard(const RandomProgram& r, const Task& task, const std::vector<std::set<uint32_t>>& done) {
  const auto& stages = r.program.stages;
  const StagePlan& c = stages[task.stage];
  const int c_row = static_cast<int>(task.index) / c.col_tiles(), c_col = static_cast<int>(task.index) % c.col_tiles();
  const int64_t col_begin = c.col_begin[static_cast<size_t>(c_col)],
                col_end = c.col_begin[static_cast<size_t>(c_col) + 1];
  for (size_t s = 0; s < task.stage; ++s) {
    const StagePlan& p = stages[s];
    for (const StageRead& read : c.reads) {
      if (p.writes[0] != read.value) continue;
      for (int t = 0; t < p.num_tasks(); ++t) {
        const int row = t / p.col_tiles();
        const auto col = static_cast<size_t>(t % p.col_tiles());
        const bool needed =
            read.reads == Reads::kAll ||
            (rows_meet(p, row, c, c_row) &&
             (read.reads == Reads::kRows || (p.col_begin[col] < col_end && col_begin < p.col_begin[col + 1])));
        if (needed && !done[s].count(static_cast<uint32_t>(t)))
          return fmt::format("{} tile {} starts before {} tile {} wrote what it reads", c.name, task.index, p.name, t);
      }
    }
  }
  // Memory: whoever reads or writes a value that lies under this stage's output must be done, apart from this tile's
  // own place in an in-place pair.
  const auto& slots = r.program.arena_plan.slots;
  const ArenaSlot* born = nullptr;
  for (const ArenaSlot& slot : slots)
    if (slot.value == c.writes[0]) born = &slot;
  for (const StageRead& read : c.reads)  // a tile that reads beyond its own place must not lie over what it reads
    for (const ArenaSlot& slot : slots)
      if (slot.value == read.value && read.reads != Reads::kTile && slot.offset < born->offset + born->bytes &&
          born->offset < slot.offset + slot.bytes)
        return fmt::format("{} writes over value {} that it reads", c.name, read.value);
  for (const ArenaSlot& dead : slots) {
    if (dead.value == born->value || dead.first_stage > static_cast<int>(task.stage)) continue;
    if (dead.offset + dead.bytes <= born->offset || born->offset + born->bytes <= dead.offset) continue;
    for (size_t s = 0; s < task.stage; ++s) {
      bool touches = stages[s].writes[0] == dead.value && c.in_place_of != dead.value;
      for (const StageRead& read : stages[s].reads) touches |= read.value == dead.value;
      if (touches && static_cast<int>(done[s].size()) != stages[s].num_tasks())
        return fmt::format("{} writes over value {} while {} is not done with it", c.name, dead.value, stages[s].name);
    }
  }
  return "";
}

// Runs the program with a random choice among the workers that may go on; returns the first hazard or dead end.
std::string simulate(const RandomProgram& r, uint64_t seed, int steps) {
  const Program& p = r.program;
  std::mt19937_64 random(seed);
  std::vector<uint64_t> counters(p.num_events, 0);
  for (int step = 1; step <= steps; ++step) {
    std::vector<std::set<uint32_t>> done(p.stages.size());
    std::vector<size_t> at(p.tasks.size(), 0);
    for (;;) {
      std::vector<size_t> ready;
      bool left = false;
      for (size_t w = 0; w < p.tasks.size(); ++w) {
        if (at[w] == p.tasks[w].size()) continue;
        left = true;
        const Task& task = p.tasks[w][at[w]];
        bool go = true;
        for (uint32_t i = task.wait_begin; i < task.wait_end; ++i)
          go &= counters[p.waits[i].event] >= p.waits[i].count * static_cast<uint64_t>(step);
        if (go) ready.push_back(w);
      }
      if (!left) break;
      if (ready.empty()) return "nobody can go on";
      const size_t w = ready[std::uniform_int_distribution<size_t>(0, ready.size() - 1)(random)];
      const Task& task = p.tasks[w][at[w]++];
      if (std::string wrong = hazard(r, task, done); !wrong.empty()) return wrong;
      done[task.stage].insert(task.index);
      for (uint32_t i = task.notify_begin; i < task.notify_end; ++i) ++counters[p.notifies[i]];
    }
  }
  return "";
}

}  // namespace

TEST(Events, RandomProgramsInRandomOrdersHaveNoHazard) {
  int cells = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    RandomProgram r = make_random(seed, seed % 4 != 0);
    ASSERT_TRUE(check_arena(r.program.arena_plan, r.program.stages).ok()) << seed;
    ASSERT_TRUE(plan_events(r.program).ok());
    for (const std::string& name : r.program.event_names) cells += name.find("->") != std::string::npos;
    for (uint64_t order = 0; order < 3; ++order) {
      const std::string wrong = simulate(r, order, 2);
      ASSERT_EQ(wrong, "") << "program " << seed << ", order " << order;
    }
  }
  EXPECT_GT(cells, 1000);  // events between single tiles were really made
}

TEST(Events, AMissingWaitIsFoundByTheSimulation) {
  int found = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    RandomProgram r = make_random(seed, true);
    ASSERT_TRUE(plan_events(r.program).ok());
    for (auto& list : r.program.tasks)
      for (Task& task : list) task.wait_end = task.wait_begin;
    for (uint64_t order = 0; order < 5; ++order) found += !simulate(r, order, 1).empty();
  }
  EXPECT_GT(found, 100);
}

TEST(Arena, SharingBytesSavesMemoryAndTheCheckerSeesAPlantedOverlap) {
  RandomProgram r = make_random(5, true);
  ArenaPlan& plan = r.program.arena_plan;
  EXPECT_LE(plan.bytes, plan.bytes_without_reuse);
  const ArenaPlan apart = plan_arena(r.graph, r.program.stages, r.program.bounds, false);
  EXPECT_EQ(apart.bytes, apart.bytes_without_reuse);
  // Two values of one stage, moved onto each other.
  ArenaSlot* in = nullptr;
  ArenaSlot* out = nullptr;
  for (size_t s = 0; s < r.program.stages.size() && !in; ++s) {
    if (r.program.stages[s].in_place_of >= 0) continue;
    for (ArenaSlot& slot : plan.slots) {
      if (slot.value == r.program.stages[s].reads[0].value) in = &slot;
      if (slot.value == r.program.stages[s].writes[0]) out = &slot;
    }
  }
  ASSERT_NE(in, nullptr);
  out->offset = in->offset;
  EXPECT_EQ(check_arena(plan, r.program.stages).code(), Code::internal);
}

TEST(Lower, ColumnsAreCutAtTheGrain) {
  EXPECT_EQ(LowerContext::cut_columns(100, 16, 3), (std::vector<int64_t>{0, 32, 64, 100}));
  EXPECT_EQ(LowerContext::cut_columns(16, 16, 8), (std::vector<int64_t>{0, 16}));
  EXPECT_EQ(LowerContext::cut_columns(5, 16, 8), (std::vector<int64_t>{0, 5}));
}

}  // namespace redline::test
