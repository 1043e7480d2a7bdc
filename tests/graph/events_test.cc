// The events and the arena of random programs, run in random orders by a simulated machine: no task may start before
// what it reads is written, or write over what others still need. What a task reads and writes is computed here from
// the sizes of a step; work partitions cut rows in a way that only this test knows.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "backends/cpu/lowering.h"
#include "graph/planning.h"
#include "support/graph_harness.h"

namespace redline::test {
namespace {

constexpr int64_t kCols = 48;

struct RandomProgram {
  Graph graph;
  Program program;
  std::vector<int> waves;
};

// Tasks in descending order of rows; with many rows, pairs of tasks share rows and halve the columns.
Tile halves(const TaskGrid& grid, int32_t index, const SymbolValues& sizes) {
  const int64_t rows = grid.rows.eval(sizes), unit = grid.row_unit.eval(sizes), units = rows / unit;
  const int64_t columns = rows >= 8 && grid.row_parts % 2 == 0 ? 2 : 1, parts = grid.row_parts / columns;
  const int64_t part = parts - 1 - index / columns, half = index % columns;
  return {units * part / parts * unit, part + 1 == parts ? rows : units * (part + 1) / parts * unit,
          grid.cols * half / columns, grid.cols * (half + 1) / columns, index};
}

TaskGrid random_grid(const std::function<int64_t(int64_t)>& below) {
  TaskGrid grid = TaskGrid::of(Dim(Symbol::kTokens), kCols);
  grid.kind = static_cast<TaskGrid::Kind>(below(5) % 3);  // more fractions, whose tiles match, than others
  if (below(2)) grid.row_parts = static_cast<int>(1 + below(4));
  if (grid.kind == TaskGrid::Kind::kFunction) {
    grid.partition = halves;
    grid.row_unit = below(3) ? 1 : 3;
    if (below(2)) grid.row_parts = 4;
  } else {
    grid.col_begin = LowerContext::cut_columns(kCols, 8, static_cast<int>(1 + below(6)));
  }
  return grid;
}

// Stages that read one or two earlier values, with random grids and ways of reading.
RandomProgram make_random(uint64_t seed, bool reuse, bool waves = false) {
  std::mt19937_64 random(seed);
  auto below = [&](int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random); };
  RandomProgram r;
  r.program.workers = static_cast<int>(1 + below(4));
  r.program.bounds = sizes(waves ? 160 : 64);
  r.graph.values.push_back({"in", DType::kF32, {Dim(Symbol::kTokens), Dim(kCols)}, ValueKind::kInput, {}});
  r.graph.inputs = {0};
  const int64_t num_stages = 2 + below(14);
  for (int64_t s = 0; s < num_stages; ++s) {
    const auto id = static_cast<ValueId>(r.graph.values.size());
    r.graph.values.push_back(
        {fmt::format("v{}", id), DType::kF32, {Dim(Symbol::kTokens), Dim(kCols)}, ValueKind::kComputed, {}});
    StagePlan stage;
    stage.name = fmt::format("s{}", s);
    stage.grid = random_grid(below);
    if (waves && below(8)) stage.grid.kind = TaskGrid::Kind::kFractions;
    const int64_t reads = 1 + below(2);
    for (int64_t k = 0; k < reads; ++k) {
      const auto value = static_cast<ValueId>(std::max<int64_t>(0, id - 1 - below(3)));
      stage.reads.push_back({value, static_cast<Reads>(below(4))});
    }
    if (below(2)) stage.in_place_of = stage.reads[0].value;  // a wish: refused when the stage reads it elsewhere too
    stage.writes = {id};
    if (waves) {
      // Long runs of stages that may be cut, where a chunk of rows needs no others.
      const bool cuts = stage.grid.kind == TaskGrid::Kind::kFractions;
      if (cuts) stage.row_cuts = RowCuts::kAtRows;
      stage.rows_in_order = cuts && below(3) == 0;
      for (StageRead& read : stage.reads)
        if (below(8)) read.reads = below(2) ? Reads::kTile : Reads::kRows;
    }
    r.program.stages.push_back(std::move(stage));
  }
  r.graph.outputs = {static_cast<ValueId>(r.graph.values.size()) - 1};
  if (waves) r.waves = plan_waves(r.program.stages);
  r.program.arena_plan = plan_arena(r.graph, r.program.stages, r.program.bounds, reuse, 64, r.waves);
  return r;
}

// The rows and columns that a task writes.
Tile written(const StagePlan& stage, const TaskGrid& grid, uint32_t index, int64_t rows) {
  Tile tile = grid.tile(static_cast<int32_t>(index), rows, sizes(rows));
  if (grid.kind != TaskGrid::Kind::kWork) return tile;
  // A cut of rows that differs from stage to stage and is not a fraction.
  const auto grain = static_cast<int64_t>(3 + std::hash<std::string>()(stage.name) % 7);
  const auto cut = [&](int64_t part) {
    return part == 0                ? 0
           : part == grid.row_parts ? rows
                                    : std::min(rows, (rows * part / grid.row_parts + grain) / grain * grain);
  };
  tile.row_begin = cut(tile.row_begin);
  tile.row_end = cut(tile.row_end);
  return tile;
}

bool meet(const Tile& a, const Tile& b) {
  return std::max(a.row_begin, b.row_begin) < std::min(a.row_end, b.row_end) &&
         std::max(a.col_begin, b.col_begin) < std::min(a.col_end, b.col_end);
}

// Returns what is wrong with running `task` now, given which tasks are done; "" when nothing is.
std::string hazard(const RandomProgram& r, const TaskSchedule& schedule, const Task& task, int64_t rows,
                   const std::vector<std::set<uint32_t>>& done) {
  const auto& stages = r.program.stages;
  const auto& grids = schedule.grids;
  const StagePlan& c = stages[task.stage];
  const auto written_by = [&](size_t s, uint32_t t) { return written(stages[s], grids[s], t, rows); };
  // Returns the tile that a task reads which writes `tile`.
  const auto read_by = [&](Tile tile, Reads reads) {
    if (reads_all_cols(reads)) tile.col_begin = 0, tile.col_end = kCols;
    if (reads_all_rows(reads)) tile.row_begin = 0, tile.row_end = rows;
    return tile;
  };
  const auto tiles = static_cast<uint32_t>(grids[task.stage].col_tiles());
  if (c.rows_in_order && task.index >= tiles && !done[task.stage].count(task.index - tiles))
    return fmt::format("{} tile {} starts before the rows above it", c.name, task.index);
  const Tile own = written_by(task.stage, task.index);
  if (own.row_begin >= own.row_end || own.col_begin >= own.col_end) return "";
  for (const StageRead& read : c.reads) {
    const Tile needed = read_by(own, read.reads);
    for (size_t s = 0; s < task.stage; ++s) {
      const StagePlan& p = stages[s];
      for (uint32_t t = 0; p.writes[0] == read.value && t < static_cast<uint32_t>(grids[s].num_tasks()); ++t)
        if (!done[s].count(t) && meet(written_by(s, t), needed))
          return fmt::format("{} tile {} starts before {} tile {} wrote what it reads", c.name, task.index, p.name, t);
    }
  }
  // Memory: whoever reads or writes a value that lies under this stage's output must be done, and of values that it is
  // written over in place, whoever reads or writes this tile's own place.
  const auto& blocks = r.program.arena_plan.blocks;
  const ArenaBlock* born = nullptr;
  for (const ArenaBlock& block : blocks)
    if (block.value == c.writes[0]) born = &block;
  for (const StageRead& read : c.reads)  // a tile that reads beyond its own place must not lie over what it reads
    for (const ArenaBlock& block : blocks)
      if (block.value == read.value && read.reads != Reads::kTile && block.offset < born->offset + born->bytes &&
          born->offset < block.offset + block.bytes)
        return fmt::format("{} writes over value {} that it reads", c.name, read.value);
  for (const ArenaBlock& dead : blocks) {
    if (dead.value == born->value || dead.first_stage > static_cast<int>(task.stage)) continue;
    if (dead.offset + dead.bytes <= born->offset || born->offset + born->bytes <= dead.offset) continue;
    const bool in_place = dead.offset == born->offset && dead.bytes == born->bytes;
    for (size_t s = 0; s < task.stage; ++s) {
      const auto tasks = static_cast<uint32_t>(grids[s].num_tasks());
      for (uint32_t t = 0; done[s].size() < tasks && t < tasks; ++t) {
        if (done[s].count(t)) continue;
        const Tile tile = written_by(s, t);
        bool touches = stages[s].writes[0] == dead.value && (!in_place || meet(tile, own));
        for (const StageRead& read : stages[s].reads)
          touches |= read.value == dead.value && (!in_place || meet(read_by(tile, read.reads), own));
        if (touches)
          return fmt::format("{} writes over value {} while {} is not done with it", c.name, dead.value,
                             stages[s].name);
      }
    }
  }
  return "";
}

// Runs the program with a random choice among the workers that may go on; returns the first hazard or dead end.
std::string simulate(const RandomProgram& r, uint64_t seed, const std::vector<int64_t>& rows_of_steps) {
  std::mt19937_64 random(seed);
  std::map<const TaskSchedule*, std::pair<std::vector<uint64_t>, uint64_t>> runs;  // counters and steps
  for (int64_t rows : rows_of_steps) {
    const TaskSchedule& p = r.program.schedule_of(sizes(rows));
    auto& [counters, step] = runs[&p];
    counters.resize(p.num_events);
    ++step;
    std::vector<std::set<uint32_t>> done(r.program.stages.size());
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
          go &= counters[p.waits[i].event] >= p.waits[i].count * step;
        if (go) ready.push_back(w);
      }
      if (!left) break;
      if (ready.empty()) return "nobody can go on";
      const size_t w = ready[std::uniform_int_distribution<size_t>(0, ready.size() - 1)(random)];
      const Task& task = p.tasks[w][at[w]++];
      if (std::string wrong = hazard(r, p, task, rows, done); !wrong.empty()) return wrong;
      done[task.stage].insert(task.index);
      for (uint32_t i = task.notify_begin; i < task.notify_end; ++i) ++counters[p.notifies[i]];
    }
  }
  return "";
}

// A program of stages that write one value each, in memory of their own. Value 0 is the input; stage s writes value
// s + 1.
Program planned(std::vector<StagePlan> stages) {
  Program program;
  program.workers = 2;
  program.stages = std::move(stages);
  for (size_t s = 0; s < program.stages.size(); ++s) {
    program.stages[s].name = fmt::format("s{}", s);
    program.stages[s].writes = {static_cast<ValueId>(s + 1)};
  }
  EXPECT_TRUE(plan_events(program).ok());
  return program;
}

StagePlan stage_of(TaskGrid grid, std::vector<StageRead> reads) {
  StagePlan stage;
  stage.grid = std::move(grid);
  stage.reads = std::move(reads);
  return stage;
}

TaskGrid fractions(const Dim& rows, int parts) {
  TaskGrid grid = TaskGrid::of(rows, kCols);
  grid.row_parts = parts;
  return grid;
}

// The number of notifications that a task of the stage waits for, summed over its waits.
int notifications(const Program& p, uint32_t stage) {
  for (const auto& list : p.tasks)
    for (const Task& task : list)
      if (task.stage == stage && task.index == 0) {
        int sum = 0;
        for (uint32_t w = task.wait_begin; w < task.wait_end; ++w) sum += static_cast<int>(p.waits[w].count);
        return sum;
      }
  return -1;
}

}  // namespace

TEST(TaskGrid, WorkPartitionsRunWhateverTheSize) {
  const TaskGrid work = TaskGrid::work_partitions(5, kCols), rows = fractions(Dim(Symbol::kTokens), 5);
  for (int64_t tokens : {0, 1, 3, 64})
    for (int32_t i = 0; i < 5; ++i) {
      const Tile a = work.tile(i, tokens, sizes(tokens)), b = rows.tile(i, tokens, sizes(tokens));
      EXPECT_EQ(a.row_begin, i);
      EXPECT_EQ(a.row_end, i + 1);
      EXPECT_EQ(b.row_begin, tokens * i / 5);  // without rows where there are more parts than rows
      EXPECT_EQ(b.row_end, tokens * (i + 1) / 5);
    }
}

TEST(Events, WorkPartitionsBetweenRowStagesWaitForTheWholeStage) {
  const TaskGrid rows = fractions(Dim(Symbol::kTokens), 4), work = TaskGrid::work_partitions(4, kCols);
  const Program p = planned({stage_of(rows, {{0, Reads::kTile}}), stage_of(work, {{1, Reads::kTile}}),
                             stage_of(work, {{2, Reads::kTile}}), stage_of(rows, {{3, Reads::kRows}}),
                             stage_of(rows, {{4, Reads::kRows}})});
  for (uint32_t stage : {1u, 2u, 3u}) EXPECT_EQ(notifications(p, stage), 4) << stage;
  EXPECT_EQ(notifications(p, 4), 1);  // equal fractions of the same rows: part by part
}

TEST(Events, WorkPartitionsAreNotTheRowsOfAValueWithAsManyRows) {
  // Stage 1 has as many constant rows as stage 0 has work partitions.
  const Program p = planned({stage_of(TaskGrid::work_partitions(4, kCols), {{0, Reads::kAll}}),
                             stage_of(fractions(Dim(4), 4), {{1, Reads::kTile}})});
  EXPECT_EQ(notifications(p, 1), 4);
}

TEST(Events, ColumnTilesOfWorkPartitionsMatch) {
  TaskGrid work = TaskGrid::work_partitions(3, kCols), rows = fractions(Dim(Symbol::kTokens), 1);
  work.col_begin = rows.col_begin = {0, 16, kCols};
  const Program p = planned({stage_of(rows, {{0, Reads::kTile}}), stage_of(work, {{1, Reads::kCols}}),
                             stage_of(work, {{2, Reads::kTile}}), stage_of(work, {{3, Reads::kRows}})});
  EXPECT_EQ(notifications(p, 1), 1);
  EXPECT_EQ(notifications(p, 2), 3);  // any partition of the same columns
  EXPECT_EQ(notifications(p, 3), 6);
}

TEST(Events, TilesOfEqualPartitionFunctionsMatch) {
  TaskGrid a = fractions(Dim(Symbol::kTokens), 4);
  a.kind = TaskGrid::Kind::kFunction;
  a.partition = halves;
  TaskGrid other_unit = a;
  other_unit.row_unit = 2;
  const Program p = planned({stage_of(a, {{0, Reads::kTile}}), stage_of(a, {{1, Reads::kTile}}),
                             stage_of(a, {{2, Reads::kRows}}), stage_of(other_unit, {{3, Reads::kTile}})});
  EXPECT_EQ(notifications(p, 1), 1);
  EXPECT_EQ(notifications(p, 2), 4);  // other tasks may have other columns of the same rows
  EXPECT_EQ(notifications(p, 3), 4);
}

TEST(Events, TwoNeedsOfOneProducerAreTheirUnion) {
  const TaskGrid rows = fractions(Dim(Symbol::kTokens), 4);
  StagePlan both = stage_of(rows, {{1, Reads::kTile}, {1, Reads::kRows}});
  EXPECT_EQ(notifications(planned({stage_of(rows, {{0, Reads::kTile}}), both}), 1), 1);
  both.reads[1].reads = Reads::kCols;
  EXPECT_EQ(notifications(planned({stage_of(rows, {{0, Reads::kTile}}), both}), 1), 4);
}

/// Values of one size; the first is the input and the third the output.
Graph graph_of(int num_values) {
  Graph graph;
  for (int v = 0; v < num_values; ++v)
    graph.values.push_back({fmt::format("v{}", v),
                            DType::kF32,
                            {Dim(Symbol::kTokens), Dim(kCols)},
                            v == 0 ? ValueKind::kInput : ValueKind::kComputed,
                            {}});
  graph.inputs = {0};
  graph.outputs = {2};
  return graph;
}

TEST(Arena, AWorkPartitionStageMayLieOverItsInput) {
  const Graph graph = graph_of(3);
  for (Reads reads : {Reads::kTile, Reads::kCols}) {
    Program p = planned({stage_of(fractions(Dim(Symbol::kTokens), 4), {{0, Reads::kTile}}),
                         stage_of(TaskGrid::work_partitions(4, kCols), {{1, reads}})});
    p.stages[1].in_place_of = 1;
    const ArenaPlan plan = plan_arena(graph, p.stages, sizes(64), true);
    EXPECT_TRUE(check_arena(plan, p.stages).ok());
    EXPECT_EQ(plan.blocks[1].offset == plan.blocks[2].offset, reads == Reads::kTile);
  }
}

TEST(Arena, OnlyTheOutputOfAStageLiesOverItsInput) {
  const Graph graph = graph_of(4);
  Program p = planned({stage_of(fractions(Dim(Symbol::kTokens), 4), {{0, Reads::kTile}}),
                       stage_of(fractions(Dim(Symbol::kTokens), 4), {{1, Reads::kTile}})});
  p.stages[1].in_place_of = 1;
  p.stages[1].writes.push_back(3);  // a temporary of the same size
  const ArenaPlan plan = plan_arena(graph, p.stages, sizes(64), true);
  EXPECT_TRUE(check_arena(plan, p.stages).ok());
  EXPECT_EQ(plan.blocks[1].offset, plan.blocks[2].offset);
  EXPECT_NE(plan.blocks[1].offset, plan.blocks[3].offset);
}

TEST(Events, RandomProgramsInRandomOrdersHaveNoHazard) {
  int cells = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    RandomProgram r = make_random(seed, seed % 4 != 0);
    ASSERT_TRUE(check_arena(r.program.arena_plan, r.program.stages).ok()) << seed;
    ASSERT_TRUE(plan_events(r.program).ok());
    for (const std::string& name : r.program.event_names) cells += name.find("->") != std::string::npos;
    for (uint64_t order = 0; order < 3; ++order) {
      const std::string wrong = simulate(r, order, {64, 2, 0, 13});
      ASSERT_EQ(wrong, "") << "program " << seed << ", order " << order;
    }
  }
  EXPECT_GT(cells, 1000);  // events between single tiles were really made
}

TEST(Events, WavesOfRandomProgramsHaveNoHazard) {
  int programs = 0, early = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    RandomProgram r = make_random(seed, seed % 4 != 0, true);
    ASSERT_TRUE(check_arena(r.program.arena_plan, r.program.stages).ok()) << seed;
    ASSERT_TRUE(plan_events(r.program).ok());
    if (r.waves.empty()) continue;
    ++programs;
    const Status status = plan_wavefront(r.program, r.waves, static_cast<int>(2 + seed % 4));
    ASSERT_TRUE(status.ok()) << status.to_string();
    ASSERT_EQ(&r.program.schedule_of(sizes(160)), &*r.program.wavefront);
    ASSERT_EQ(&r.program.schedule_of(sizes(79)), &r.program);
    // A task that comes before a task of an earlier stage in some list.
    for (const std::vector<Task>& list : r.program.wavefront->tasks)
      for (size_t i = 1; i < list.size(); ++i) early += list[i].stage < list[i - 1].stage;
    for (uint64_t order = 0; order < 2; ++order) {
      const std::string wrong = simulate(r, order, {160, 13, 97});
      ASSERT_EQ(wrong, "") << "program " << seed << ", order " << order;
    }
  }
  EXPECT_GT(programs, 60);
  EXPECT_GT(early, 300);
}

TEST(Events, ALayerBeginsBeforeTheRecurrenceBelowItIsDone) {
  // Two layers of a recurrence by heads, and a product with all columns over the residual stream.
  TaskGrid whole = TaskGrid::of(Dim(Symbol::kTokens), kCols);
  whole.col_begin = {0, 16, 32, kCols};
  std::vector<StagePlan> stages;
  for (ValueId x = 0; x < 4; x += 2) {
    stages.push_back(stage_of(whole, {{x, Reads::kRows}}));
    stages.back().rows_in_order = true;
    stages.push_back(stage_of(whole, {{x + 1, Reads::kRows}, {x, Reads::kTile}}));
  }
  for (StagePlan& stage : stages) stage.row_cuts = RowCuts::kAtRows;
  Program p = planned(stages);
  p.bounds = sizes(128);
  const std::vector<int> waves = plan_waves(p.stages);
  EXPECT_EQ(waves, (std::vector<int>{1, 1, 2, 2}));
  ASSERT_TRUE(plan_wavefront(p, waves, 4).ok());
  // The first chunk of the last stage does not wait for the last chunk of the first one, in either list.
  for (const std::vector<Task>& list : p.wavefront->tasks) {
    size_t last_of_first = 0, first_of_last = list.size();
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].stage == 0) last_of_first = i;
      if (list[i].stage == 3) first_of_last = std::min(first_of_last, i);
    }
    EXPECT_LT(first_of_last, last_of_first);
  }
}

TEST(Events, OnlyStepsWithSequencesAtTheGrainTakeTheWavefront) {
  Program p;
  p.wavefront.emplace().min_tokens = 64;
  p.wavefront->cuts = RowCuts::kAtPositions;
  const auto takes = [&](std::vector<SequenceRows> rows) {
    StepContext step;
    step.sizes = sizes(rows.back().row_begin + rows.back().rows);
    step.sequences = rows;
    return &p.schedule_of(step) != &p;
  };
  EXPECT_TRUE(takes({{0, 64, 0}}));
  EXPECT_TRUE(takes({{0, 100, 256}}));
  EXPECT_FALSE(takes({{0, 63, 0}}));
  EXPECT_FALSE(takes({{0, 64, 5}}));
  EXPECT_FALSE(takes({{0, 1, 9}, {1, 100, 0}}));
  EXPECT_TRUE(takes({{0, 1, 9}, {1, 31, 0}, {32, 64, 96}}));
  EXPECT_TRUE(takes({{0, 3, 9}, {3, 100, 35}}));
}

TEST(Events, AMissingWaitIsFoundByTheSimulation) {
  int found = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    RandomProgram r = make_random(seed, true);
    ASSERT_TRUE(plan_events(r.program).ok());
    for (auto& list : r.program.tasks)
      for (Task& task : list) task.wait_end = task.wait_begin;
    for (uint64_t order = 0; order < 5; ++order) found += !simulate(r, order, {64}).empty();
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
  ArenaBlock* in = nullptr;
  ArenaBlock* out = nullptr;
  for (size_t s = 0; s < r.program.stages.size() && !in; ++s) {
    if (r.program.stages[s].in_place_of >= 0) continue;
    for (ArenaBlock& block : plan.blocks) {
      if (block.value == r.program.stages[s].reads[0].value) in = &block;
      if (block.value == r.program.stages[s].writes[0]) out = &block;
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
