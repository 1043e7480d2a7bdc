// Dependencies between tasks: stage dependencies, refined to tiles where the grids of producer and consumer allow it.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

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

// No groups if some consumer tile needs no tile, or some producer tile is needed by none: a stage that c waits for must
// be complete when c is.
TileGroups group_tiles(const TaskGrid& p, const TaskGrid& c, Reads reads) {
  if (reads == Reads::kAll) return {};
  const bool parts_match = p.parts_match(c, reads);
  UnionFind tiles(p.num_tasks());
  std::vector<int> first_needed(static_cast<size_t>(c.num_tasks()), -1);
  std::vector<bool> used(static_cast<size_t>(p.num_tasks()), false);
  for (int consumer = 0; consumer < c.num_tasks(); ++consumer) {
    const int row = consumer / c.col_tiles(), col = consumer % c.col_tiles();
    int& first = first_needed[static_cast<size_t>(consumer)];
    const int row_begin = parts_match ? row : 0, row_end = parts_match ? row + 1 : p.row_parts;
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
  explicit EventPlanner(Program& program)
      : program_(program), stages_(program.stages), complete_(stages_.size(), StageSet(stages_.size())),
        waits_(stages_.size()), notifies_(stages_.size()), stage_event_(stages_.size(), -1) {
    for (size_t s = 0; s < stages_.size(); ++s) {
      for (const StageRead& read : stages_[s].reads) readers_[read.value].push_back(s);
      for (ValueId id : stages_[s].writes) producer_[id] = s;
      waits_[s].resize(static_cast<size_t>(stages_[s].grid.num_tasks()));
      notifies_[s].resize(static_cast<size_t>(stages_[s].grid.num_tasks()));
    }
  }
  Status plan() {
    for (size_t c = 0; c < stages_.size(); ++c) {
      Needs needs(c);
      REDLINE_TRY(add_values(c, needs));
      add_memory(c, needs);
      for (const Dependency& dependency : reduce(c, needs)) emit(c, dependency);
    }
    deal();
    return {};
  }

 private:
  using Needs = std::vector<std::optional<Reads>>;  // [earlier stages]
  struct Dependency {
    size_t producer;
    TileGroups groups;
  };

  static void add(Needs& needs, size_t p, Reads reads) { needs[p] = needs[p] ? *needs[p] | reads : reads; }
  Status add_values(size_t c, Needs& needs) const;
  void add_memory(size_t c, Needs& needs) const;
  std::vector<Dependency> reduce(size_t c, const Needs& needs);
  void emit(size_t c, const Dependency& dependency);
  void emit_whole(size_t c, size_t p);
  void deal();
  uint32_t new_event(std::string name) {
    program_.event_names.push_back(std::move(name));
    return program_.num_events++;
  }

  Program& program_;
  const std::vector<StagePlan>& stages_;
  std::map<ValueId, size_t> producer_;
  std::map<ValueId, std::vector<size_t>> readers_;
  std::vector<StageSet> complete_;
  std::vector<std::vector<std::vector<Wait>>> waits_;         // [stage][task]
  std::vector<std::vector<std::vector<uint32_t>>> notifies_;  // [stage][task]
  std::vector<int64_t> stage_event_;                          // of the whole stage; -1: none yet
};

// What stage c needs because it reads values.
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

// What stage c needs because it overwrites bytes that earlier stages read or write.
void EventPlanner::add_memory(size_t c, Needs& needs) const {
  const int stage = static_cast<int>(c);
  for (const ArenaBlock& born : program_.arena_plan.blocks) {
    if (born.first_stage != stage || born.bytes == 0) continue;
    for (const ArenaBlock& dead : program_.arena_plan.blocks) {
      if (dead.value == born.value || dead.bytes == 0 || dead.first_stage > stage) continue;
      if (dead.offset + dead.bytes <= born.offset || born.offset + born.bytes <= dead.offset) continue;
      if (const auto at = readers_.find(dead.value); at != readers_.end())
        for (size_t reader : at->second)
          if (reader < c) add(needs, reader, Reads::kAll);
      if (const auto at = producer_.find(dead.value); at != producer_.end() && at->second < c)
        add(needs, at->second, stages_[c].in_place_of == dead.value ? Reads::kTile : Reads::kAll);
    }
  }
}

// Drops what follows from another dependency of the stage that is waited for as a whole. Latest first, because only a
// later stage can imply an earlier one. Pairs of dependencies are not considered, since their number grows with the
// layers.
std::vector<EventPlanner::Dependency> EventPlanner::reduce(size_t c, const Needs& needs) {
  std::vector<Dependency> kept;
  StageSet implied(stages_.size());
  for (size_t p = c; p-- > 0;) {
    if (!needs[p]) continue;
    // Some tile of c waits for every tile of each needed stage, so those stages are complete when c is.
    complete_[c].add(p);
    if (implied.has(p)) continue;
    complete_[c].add(complete_[p]);
    kept.push_back({p, group_tiles(stages_[p].grid, stages_[c].grid, *needs[p])});
    if (kept.back().groups.count < 2) implied.add(complete_[p]);
  }
  return kept;
}

// One event for all tasks of stage p, shared by all waiting stages.
void EventPlanner::emit_whole(size_t c, size_t p) {
  if (stage_event_[p] < 0) {
    stage_event_[p] = new_event(stages_[p].name);
    for (auto& list : notifies_[p]) list.push_back(static_cast<uint32_t>(stage_event_[p]));
  }
  for (auto& list : waits_[c])
    list.push_back({static_cast<uint32_t>(stage_event_[p]), static_cast<uint32_t>(stages_[p].grid.num_tasks())});
}

void EventPlanner::emit(size_t c, const Dependency& dependency) {
  const size_t p = dependency.producer;
  const TileGroups& groups = dependency.groups;
  if (groups.count < 2) return emit_whole(c, p);
  std::vector<Wait> wait;
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

// Tasks to workers: the same share of every stage's tasks, in order, so that consecutive stages put nearly the same
// columns on one worker.
void EventPlanner::deal() {
  program_.tasks.assign(static_cast<size_t>(program_.workers), {});
  for (size_t s = 0; s < stages_.size(); ++s) {
    const int tasks = stages_[s].grid.num_tasks();
    for (int t = 0; t < tasks; ++t) {
      const std::vector<Wait>& waits = waits_[s][static_cast<size_t>(t)];
      const std::vector<uint32_t>& notifies = notifies_[s][static_cast<size_t>(t)];
      Task task;
      task.stage = static_cast<uint32_t>(s);
      task.index = static_cast<uint32_t>(t);
      task.wait_begin = static_cast<uint32_t>(program_.waits.size());
      task.notify_begin = static_cast<uint32_t>(program_.notifies.size());
      program_.waits.insert(program_.waits.end(), waits.begin(), waits.end());
      program_.notifies.insert(program_.notifies.end(), notifies.begin(), notifies.end());
      task.wait_end = static_cast<uint32_t>(program_.waits.size());
      task.notify_end = static_cast<uint32_t>(program_.notifies.size());
      program_.tasks[static_cast<size_t>(int64_t{t} * program_.workers / tasks)].push_back(task);
    }
  }
}

}  // namespace

Status plan_events(Program& program) { return EventPlanner(program).plan(); }

}  // namespace redline
