// Dependencies between tasks: stage dependencies, refined to tiles where the grids of producer and consumer allow it.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include "graph/planning.h"

namespace redline {
namespace {

// For a stage, the set of earlier stages that are complete once it is.
class StageSet {
 public:
  explicit StageSet(size_t stages) : words_((stages + 63) / 64) {}
  void add(size_t s) { words_[s / 64] |= uint64_t{1} << (s % 64); }
  void add(const StageSet& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }
  bool has(size_t s) const { return words_[s / 64] >> (s % 64) & 1; }

 private:
  std::vector<uint64_t> words_;
};

class UnionFind {
 public:
  explicit UnionFind(int count) : parent_(static_cast<size_t>(count)) { std::iota(parent_.begin(), parent_.end(), 0); }
  int root(int i) {
    while (at(i) != i) i = at(i) = at(at(i));
    return i;
  }
  void join(int a, int b) { at(root(b)) = root(a); }

 private:
  int& at(int i) { return parent_[static_cast<size_t>(i)]; }
  std::vector<int> parent_;
};

// The tiles of a producer, in groups such that each tile of the consumer needs tiles of one group only.
struct TileGroups {
  int count = 0;                              // below 2: the consumer waits for the whole stage
  std::vector<int> of_producer, of_consumer;  // [tasks]
};

bool columns_meet(const TaskGrid& p, int p_col, const TaskGrid& c, int c_col) {
  const auto begin = [](const TaskGrid& grid, int col) { return grid.col_begin[static_cast<size_t>(col)]; };
  return begin(p, p_col) < begin(c, c_col + 1) && begin(c, c_col) < begin(p, p_col + 1);
}

// Returns the groups of tiles that depend on each other. There are no groups if a consumer tile needs no producer tile,
// or a producer tile is needed by no consumer tile: reduce() relies on a stage being complete when all stages that wait
// for it are.
TileGroups group_tiles(const TaskGrid& p, const TaskGrid& c, Reads reads) {
  if (reads == Reads::kAll) return {};
  UnionFind tiles(p.num_tasks());
  std::vector<int> first_needed(static_cast<size_t>(c.num_tasks()), -1);
  std::vector<bool> used(static_cast<size_t>(p.num_tasks()), false);
  for (int consumer = 0; consumer < c.num_tasks(); ++consumer) {
    const int row = consumer / c.col_tiles(), col = consumer % c.col_tiles();
    int& first = first_needed[static_cast<size_t>(consumer)];
    const auto [row_begin, row_end] = p.needed_parts(c, row, reads);
    for (int p_row = row_begin; p_row < row_end; ++p_row)
      for (int p_col = 0; p_col < p.col_tiles(); ++p_col) {
        if (!reads_all_cols(reads) && !columns_meet(p, p_col, c, col)) continue;
        const int tile = p_row * p.col_tiles() + p_col;
        used[static_cast<size_t>(tile)] = true;
        if (first < 0) first = tile;
        else tiles.join(first, tile);
      }
    if (first < 0) return {};
  }
  if (std::find(used.begin(), used.end(), false) != used.end()) return {};
  TileGroups groups;
  std::map<int, int> number;
  for (int tile = 0; tile < p.num_tasks(); ++tile)
    groups.of_producer.push_back(number.emplace(tiles.root(tile), static_cast<int>(number.size())).first->second);
  groups.count = static_cast<int>(number.size());
  for (int tile : first_needed) groups.of_consumer.push_back(groups.of_producer[static_cast<size_t>(tile)]);
  return groups;
}

class EventPlanner {
 public:
  /// Fills all of `schedule` but its grids.
  EventPlanner(const Program& program, TaskSchedule& schedule)
      : program_(program), schedule_(schedule), stages_(program.stages),
        complete_(stages_.size(), StageSet(stages_.size())), rows_complete_(complete_), waits_(stages_.size()),
        notifies_(stages_.size()), stage_event_(stages_.size(), -1) {
    schedule_.waits.clear();
    schedule_.notifies.clear();
    schedule_.num_events = 0;
    schedule_.event_names.clear();
    schedule_.tasks.assign(static_cast<size_t>(program_.workers), {});
    for (const ArenaBlock& block : program_.arena_plan.blocks) block_of_[block.value] = &block;
    for (size_t s = 0; s < stages_.size(); ++s) {
      for (const StageRead& read : stages_[s].reads) readers_[read.value].push_back(s);
      for (ValueId id : stages_[s].writes) producer_[id] = s;
      waits_[s].resize(static_cast<size_t>(grid(s).num_tasks()));
      notifies_[s].resize(static_cast<size_t>(grid(s).num_tasks()));
    }
  }
  Status plan() {
    for (size_t c = 0; c < stages_.size(); ++c) {
      Needs needs(c);
      REDLINE_TRY(add_values(c, needs));
      add_memory(c, needs);
      for (const Dependency& dependency : reduce(c, needs)) emit(c, dependency);
      if (stages_[c].rows_in_order) emit_order(c);
    }
    return {};
  }
  /// Assigns tasks to the workers' lists in the order of the graph.
  void deal();
  /// Assigns tasks to the workers' lists in the order of waves[stage] + the index of the task's chunk of rows, as far
  /// as the events allow this order. chunks[stage] is the stage's number of chunks. internal: the events of some tasks
  /// wait for each other.
  Status deal_waves(std::span<const int> waves, std::span<const int> chunks);

 private:
  using Needs = std::vector<std::optional<Reads>>;  // [earlier stages]
  struct Dependency {
    size_t producer;
    TileGroups groups;
  };

  static void add(Needs& needs, size_t p, Reads reads) { needs[p] = needs[p] ? *needs[p] | reads : reads; }
  Status add_values(size_t c, Needs& needs) const;
  void add_memory(size_t c, Needs& needs) const;
  std::vector<ValueId> values_under(size_t c, const ArenaBlock& born) const;
  Reads rows_read(size_t reader, ValueId value) const;
  std::vector<Dependency> reduce(size_t c, const Needs& needs);
  void emit(size_t c, const Dependency& dependency);
  void emit_whole(size_t c, size_t p);
  void emit_order(size_t c);
  void deal(size_t s, int t, int chunks);
  const TaskGrid& grid(size_t s) const { return schedule_.grids[s]; }
  uint32_t new_event(std::string name) {
    schedule_.event_names.push_back(std::move(name));
    return schedule_.num_events++;
  }

  const Program& program_;
  TaskSchedule& schedule_;
  const std::vector<StagePlan>& stages_;
  std::map<ValueId, size_t> producer_;
  std::map<ValueId, const ArenaBlock*> block_of_;
  std::map<ValueId, std::vector<size_t>> readers_;
  std::vector<StageSet> complete_;
  /// [stages] For each stage, the earlier stages that have completed a range of rows once this stage has completed it.
  std::vector<StageSet> rows_complete_;
  std::vector<std::vector<std::vector<Wait>>> waits_;         // [stage][task]
  std::vector<std::vector<std::vector<uint32_t>>> notifies_;  // [stage][task]
  std::vector<int64_t> stage_event_;                          // event of the whole stage; -1: none yet
};

// Adds the needs of stage c that come from reading values.
Status EventPlanner::add_values(size_t c, Needs& needs) const {
  for (const StageRead& read : stages_[c].reads) {
    const auto at = producer_.find(read.value);
    if (at == producer_.end()) continue;
    if (at->second >= c)
      return internal("program: stage {} reads what stage {} makes later", stages_[c].name, stages_[at->second].name);
    add(needs, at->second, read.reads);
  }
  return {};
}

// Adds the needs of stage c that come from overwriting bytes that earlier stages read or write.
void EventPlanner::add_memory(size_t c, Needs& needs) const {
  const int stage = static_cast<int>(c);
  for (const ArenaBlock& born : program_.arena_plan.blocks) {
    if (born.first_stage != stage || born.bytes == 0) continue;
    const std::vector<ValueId> under = values_under(c, born);
    for (const ArenaBlock& dead : program_.arena_plan.blocks) {
      if (dead.value == born.value || dead.bytes == 0 || dead.first_stage > stage) continue;
      if (dead.offset + dead.bytes <= born.offset || born.offset + born.bytes <= dead.offset) continue;
      const bool in_place = std::find(under.begin(), under.end(), dead.value) != under.end();
      if (const auto at = readers_.find(dead.value); at != readers_.end())
        for (size_t reader : at->second)
          if (reader < c) add(needs, reader, in_place ? rows_read(reader, dead.value) : Reads::kAll);
      if (const auto at = producer_.find(dead.value); at != producer_.end() && at->second < c)
        add(needs, at->second, in_place ? Reads::kTile : Reads::kAll);
    }
  }
}

// Returns the values that `born`, the output of stage c, overwrites in place: the input that it overwrites, the value
// that this input has overwritten in place, and so on.
std::vector<ValueId> EventPlanner::values_under(size_t c, const ArenaBlock& born) const {
  std::vector<ValueId> values;
  const auto under = [&](size_t stage, ValueId value) {
    return stages_[stage].writes.front() == value ? stages_[stage].in_place_of : -1;
  };
  for (ValueId below = under(c, born.value); below >= 0;) {
    const auto block = block_of_.find(below);
    if (block == block_of_.end() || block->second->offset != born.offset || block->second->bytes != born.bytes) break;
    values.push_back(below);
    const auto producer = producer_.find(below);
    below = producer == producer_.end() ? -1 : under(producer->second, below);
  }
  return values;
}

// Returns the tiles of stage `reader` that must be complete before another stage overwrites a tile of the value in
// place: the tiles of the same rows (kRows) if the reader reads no other rows of the value, else kAll.
Reads EventPlanner::rows_read(size_t reader, ValueId value) const {
  Reads all = Reads::kTile;
  for (const StageRead& read : stages_[reader].reads)
    if (read.value == value) all = all | read.reads;
  return reads_all_rows(all) ? Reads::kAll : Reads::kRows;
}

// Returns the dependencies of stage c without those that another one implies:
// 1. Stage c waits for another whole stage, which is complete only after the stage of the dependency.
// 2. Each task of stage c waits for all columns of its rows of another stage, which are complete only after the same
//    rows of the stage of the dependency.
// Later stages are examined first, because only a later stage can imply an earlier one. Implications of two
// dependencies together are not considered, because the number of pairs grows with the layers.
std::vector<EventPlanner::Dependency> EventPlanner::reduce(size_t c, const Needs& needs) {
  std::vector<Dependency> kept;
  StageSet implied(stages_.size()), rows_implied(stages_.size());
  for (size_t p = c; p-- > 0;) {
    if (!needs[p]) continue;
    const bool same_rows = grid(p).cuts_like(grid(c));
    // Some tile of c waits for every tile of each needed stage, so those stages are complete when c is; some tile of
    // the same rows for every tile of those rows.
    complete_[c].add(p);
    if (same_rows) {
      rows_complete_[c].add(p);
      rows_complete_[c].add(rows_complete_[p]);
    }
    if (implied.has(p)) continue;
    complete_[c].add(complete_[p]);
    if (same_rows && !reads_all_rows(*needs[p]) && rows_implied.has(p)) continue;
    kept.push_back({p, group_tiles(grid(p), grid(c), *needs[p])});
    if (kept.back().groups.count < 2) implied.add(complete_[p]);
    else if (same_rows && reads_all_cols(*needs[p])) rows_implied.add(rows_complete_[p]);
  }
  return kept;
}

// Makes all tasks of stage c wait for all tasks of stage p. The event of stage p is shared by all waiting stages.
void EventPlanner::emit_whole(size_t c, size_t p) {
  if (stage_event_[p] < 0) {
    stage_event_[p] = new_event(stages_[p].name);
    for (auto& list : notifies_[p]) list.push_back(static_cast<uint32_t>(stage_event_[p]));
  }
  for (auto& list : waits_[c])
    list.push_back({static_cast<uint32_t>(stage_event_[p]), static_cast<uint32_t>(grid(p).num_tasks())});
}

// Makes each task of stage c wait for the task of the same columns and the preceding rows.
void EventPlanner::emit_order(size_t c) {
  const int tiles = grid(c).col_tiles();
  for (int t = tiles; t < grid(c).num_tasks(); ++t) {
    const uint32_t event = new_event(fmt::format("{}[{}]", stages_[c].name, t - tiles));
    notifies_[c][static_cast<size_t>(t - tiles)].push_back(event);
    waits_[c][static_cast<size_t>(t)].push_back({event, 1});
  }
}

void EventPlanner::emit(size_t c, const Dependency& dependency) {
  const size_t p = dependency.producer;
  const TileGroups& groups = dependency.groups;
  if (groups.count < 2) return emit_whole(c, p);
  std::vector<Wait> wait;
  wait.reserve(static_cast<size_t>(groups.count));
  for (int k = 0; k < groups.count; ++k)
    wait.push_back({new_event(fmt::format("{}->{}[{}]", stages_[p].name, stages_[c].name, k)), 0});
  for (size_t t = 0; t < groups.of_producer.size(); ++t) {
    Wait& of_group = wait[static_cast<size_t>(groups.of_producer[t])];
    notifies_[p][t].push_back(of_group.event);
    ++of_group.count;
  }
  for (size_t t = 0; t < groups.of_consumer.size(); ++t)
    waits_[c][t].push_back(wait[static_cast<size_t>(groups.of_consumer[t])]);
}

// Appends task t of stage s to a worker's list. Each worker gets the same share of every stage's tasks, or of the tasks
// of each chunk of its rows, in order. Consecutive stages then have nearly the same columns on one worker.
void EventPlanner::deal(size_t s, int t, int chunks) {
  const int each = grid(s).num_tasks() / chunks;
  const std::vector<Wait>& waits = waits_[s][static_cast<size_t>(t)];
  const std::vector<uint32_t>& notifies = notifies_[s][static_cast<size_t>(t)];
  Task task;
  task.stage = static_cast<uint32_t>(s);
  task.index = static_cast<uint32_t>(t);
  task.wait_begin = static_cast<uint32_t>(schedule_.waits.size());
  task.notify_begin = static_cast<uint32_t>(schedule_.notifies.size());
  schedule_.waits.insert(schedule_.waits.end(), waits.begin(), waits.end());
  schedule_.notifies.insert(schedule_.notifies.end(), notifies.begin(), notifies.end());
  task.wait_end = static_cast<uint32_t>(schedule_.waits.size());
  task.notify_end = static_cast<uint32_t>(schedule_.notifies.size());
  schedule_.tasks[static_cast<size_t>(int64_t{t % each} * program_.workers / each)].push_back(task);
}

void EventPlanner::deal() {
  for (size_t s = 0; s < stages_.size(); ++s)
    for (int t = 0; t < grid(s).num_tasks(); ++t) deal(s, t, 1);
}

Status EventPlanner::deal_waves(std::span<const int> waves, std::span<const int> chunks) {
  // Within a wave, the first stages of all its layers come first, so that a stage seldom waits for the one before it.
  struct Place {
    int wave;
    int phase;
    size_t stage;
    int task;
    bool operator<(const Place& other) const {
      return std::tie(wave, phase, stage, task) < std::tie(other.wave, other.phase, other.stage, other.task);
    }
  };
  std::vector<std::vector<Place>> waiting(schedule_.num_events);
  std::vector<uint32_t> missing(schedule_.num_events, 0);   // notifications
  std::vector<std::vector<uint32_t>> left(stages_.size());  // [stage][task] events
  std::set<Place> ready;
  size_t num_tasks = 0, dealt = 0;
  int phase = 0;
  for (size_t s = 0; s < stages_.size(); ++s) {
    phase = s == 0 || waves[s] != waves[s - 1] ? 0 : phase + 1;
    const int tasks = grid(s).num_tasks(), each = tasks / chunks[s];
    num_tasks += static_cast<size_t>(tasks);
    for (int t = 0; t < tasks; ++t) {
      const Place place{waves[s] + t / each, phase, s, t};
      const std::vector<Wait>& waits = waits_[s][static_cast<size_t>(t)];
      left[s].push_back(static_cast<uint32_t>(waits.size()));
      for (const Wait& wait : waits) waiting[wait.event].push_back(place);
      if (waits.empty()) ready.insert(place);
      for (const uint32_t event : notifies_[s][static_cast<size_t>(t)]) ++missing[event];
    }
  }
  for (; !ready.empty(); ++dealt) {
    const Place next = *ready.begin();
    ready.erase(ready.begin());
    deal(next.stage, next.task, chunks[next.stage]);
    for (const uint32_t event : notifies_[next.stage][static_cast<size_t>(next.task)]) {
      if (--missing[event] > 0) continue;
      for (const Place& place : waiting[event])
        if (--left[place.stage][static_cast<size_t>(place.task)] == 0) ready.insert(place);
    }
  }
  if (dealt < num_tasks)
    return internal("program {}: {} of {} tasks wait for each other", program_.name, num_tasks - dealt, num_tasks);
  return {};
}

// Returns the number of row parts in each chunk of a stage that has `parts` row parts without chunks.
int parts_of_chunk(int parts, int64_t chunk_rows) {
  return std::clamp(static_cast<int>(chunk_rows / kWaveGrain), 1, parts);
}

}  // namespace

Status plan_events(Program& program) {
  program.grids.clear();
  for (const StagePlan& stage : program.stages) program.grids.push_back(stage.grid);
  EventPlanner planner(program, program);
  REDLINE_TRY(planner.plan());
  planner.deal();
  return {};
}

std::vector<int> plan_waves(std::span<const StagePlan> stages) {
  std::vector<int> waves(stages.size(), -1);
  bool any = false;
  for (size_t begin = 0, end = 0; begin < stages.size(); begin = end) {
    bool in_order = false;
    const auto joins = [&](const StagePlan& stage) {
      return stage.row_cuts != RowCuts::kNone && stage.grid.rows == stages[begin].grid.rows;
    };
    for (end = begin; end < stages.size() && joins(stages[end]); ++end) in_order |= stages[end].rows_in_order;
    for (size_t s = begin, wave = 0; in_order && s < end; ++s) {
      wave += stages[s].rows_in_order ? 1U : 0U;
      waves[s] = static_cast<int>(wave);
    }
    any |= in_order;
    end = std::max(end, begin + 1);
  }
  if (!any) waves.clear();
  return waves;
}

Status plan_wavefront(Program& program, std::vector<int> waves, int chunks) {
  REDLINE_CHECK(waves.size() == program.stages.size() && chunks > 1);
  const int64_t tokens = program.bounds[Symbol::kTokens];
  std::vector<int> chunks_of(program.stages.size(), 1);
  Wavefront front;
  front.min_tokens = tokens / 2;
  int first = 0, last = 0;  // waves are numbered through the program
  for (size_t s = 0; s < program.stages.size(); ++s) {
    front.grids.push_back(program.stages[s].grid);
    if (waves[s] < 0) {
      // A stage that is not cut comes after all earlier stages.
      first = last = last + chunks;
      waves[s] = first;
      continue;
    }
    front.cuts = std::max(front.cuts, program.stages[s].row_cuts);
    waves[s] += first + 1;
    last = std::max(last, waves[s]);
    chunks_of[s] = chunks;
    TaskGrid& grid = front.grids.back();
    grid.row_parts = chunks * parts_of_chunk(grid.row_parts, tokens / chunks);
    grid.row_grain = kWaveGrain;
  }
  EventPlanner planner(program, front);
  REDLINE_TRY(planner.plan());
  REDLINE_TRY(planner.deal_waves(waves, chunks_of));
  program.wavefront = std::move(front);
  return {};
}

}  // namespace redline
