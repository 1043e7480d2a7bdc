// Dependencies between tasks: stage dependencies, refined to tiles where the tilings of producer and consumer allow it.
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

struct Overlap {
  int64_t begin, end;
  bool meets(int64_t b, int64_t e) const { return begin < e && b < end; }
};

// Groups the tiles of producer `p`: tiles needed by one tile of consumer `c` are merged into one group. Returns the
// group of each tile; empty if there is only one group or some producer tile is needed by no consumer (then c waits for
// the whole stage).
std::vector<int> tile_groups(const StagePlan& p, const StagePlan& c, Reads reads, std::vector<int>& consumer_group) {
  if (reads == Reads::kAll) return {};
  const bool same_rows = p.row_tiles == c.row_tiles && p.rows == c.rows;
  const int p_cols = p.col_tiles(), c_cols = c.col_tiles();
  std::vector<int> parent(static_cast<size_t>(p.num_tasks()));
  std::iota(parent.begin(), parent.end(), 0);
  auto root = [&](int i) {
    while (parent[static_cast<size_t>(i)] != i)
      i = parent[static_cast<size_t>(i)] = parent[static_cast<size_t>(parent[static_cast<size_t>(i)])];
    return i;
  };
  std::vector<int> first_needed(static_cast<size_t>(c.num_tasks()), -1);
  std::vector<bool> used(parent.size(), false);
  for (int row = 0; row < c.row_tiles; ++row)
    for (int col = 0; col < c_cols; ++col) {
      const Overlap need{c.col_begin[static_cast<size_t>(col)], c.col_begin[static_cast<size_t>(col) + 1]};
      const int consumer = row * c_cols + col;
      int& first = first_needed[static_cast<size_t>(consumer)];
      for (int p_row = 0; p_row < p.row_tiles; ++p_row) {
        if (same_rows && p_row != row) continue;
        for (int p_col = 0; p_col < p_cols; ++p_col) {
          if (reads == Reads::kTile &&
              !need.meets(p.col_begin[static_cast<size_t>(p_col)], p.col_begin[static_cast<size_t>(p_col) + 1]))
            continue;
          const int tile = p_row * p_cols + p_col;
          used[static_cast<size_t>(tile)] = true;
          if (first < 0) first = tile;
          else parent[static_cast<size_t>(root(tile))] = root(first);
        }
      }
      if (first < 0) return {};
    }
  if (std::find(used.begin(), used.end(), false) != used.end()) return {};
  std::vector<int> group(parent.size());
  std::map<int, int> number;
  for (size_t i = 0; i < parent.size(); ++i)
    group[i] = number.emplace(root(static_cast<int>(i)), static_cast<int>(number.size())).first->second;
  if (number.size() < 2) return {};
  consumer_group.resize(first_needed.size());
  for (size_t i = 0; i < first_needed.size(); ++i) consumer_group[i] = group[static_cast<size_t>(first_needed[i])];
  return group;
}

}  // namespace

Status plan_events(Program& program) {
  std::span<const StagePlan> stages = program.stages;
  const size_t n = stages.size();
  std::map<ValueId, size_t> producer;
  std::map<ValueId, std::vector<size_t>> readers;
  for (size_t s = 0; s < n; ++s) {
    for (const StageRead& read : stages[s].reads) readers[read.value].push_back(s);
    for (ValueId id : stages[s].writes) producer[id] = s;
  }

  std::vector<StageSet> complete(n, StageSet(n));
  std::vector<std::vector<std::vector<Wait>>> waits(n);         // [stage][task]
  std::vector<std::vector<std::vector<uint32_t>>> notifies(n);  // [stage][task]
  std::vector<int64_t> stage_event(n, -1);
  for (size_t s = 0; s < n; ++s) {
    waits[s].resize(static_cast<size_t>(stages[s].num_tasks()));
    notifies[s].resize(static_cast<size_t>(stages[s].num_tasks()));
  }
  auto new_event = [&](std::string name) {
    program.event_names.push_back(std::move(name));
    return program.num_events++;
  };

  std::vector<std::optional<Reads>> needs(n);
  for (size_t c = 0; c < n; ++c) {
    // Dependencies of stage c: values that it reads, and memory that earlier stages must have released.
    std::fill(needs.begin(), needs.begin() + static_cast<int64_t>(c), std::nullopt);
    auto need = [&](size_t p, Reads reads) {
      if (needs[p] && *needs[p] != reads) reads = Reads::kAll;
      needs[p] = reads;
    };
    for (const StageRead& read : stages[c].reads)
      if (auto at = producer.find(read.value); at != producer.end()) {
        if (at->second >= c)
          return internal("program: stage {} reads what stage {} makes later", stages[c].name, stages[at->second].name);
        need(at->second, read.reads);
      }
    for (const ArenaSlot& born : program.arena_plan.slots) {
      if (born.first_stage != static_cast<int>(c) || born.bytes == 0) continue;
      for (const ArenaSlot& dead : program.arena_plan.slots) {
        if (dead.value == born.value || dead.bytes == 0 || dead.first_stage > static_cast<int>(c)) continue;
        if (dead.offset + dead.bytes <= born.offset || born.offset + born.bytes <= dead.offset) continue;
        for (size_t reader : readers[dead.value])
          if (reader < c) need(reader, Reads::kAll);
        if (auto at = producer.find(dead.value); at != producer.end() && at->second < c)
          need(at->second, stages[c].in_place_of == dead.value ? Reads::kTile : Reads::kAll);
      }
    }

    // Latest first, because only a later stage can imply an earlier one: a dependency is redundant if another stage
    // that is waited for as a whole implies it. Pairs of dependencies are not considered, since their number grows with
    // the layers.
    StageSet implied(n);
    for (size_t p = c; p-- > 0;) {
      if (!needs[p]) continue;
      // Some tile of c waits for every tile of each needed stage, so those stages are complete when c is.
      complete[c].add(p);
      if (implied.has(p)) continue;
      complete[c].add(complete[p]);
      std::vector<int> own;
      const std::vector<int> group = tile_groups(stages[p], stages[c], *needs[p], own);
      if (group.empty()) {
        implied.add(complete[p]);
        if (stage_event[p] < 0) {
          stage_event[p] = new_event(stages[p].name);
          for (auto& list : notifies[p]) list.push_back(static_cast<uint32_t>(stage_event[p]));
        }
        for (auto& list : waits[c])
          list.push_back({static_cast<uint32_t>(stage_event[p]), static_cast<uint32_t>(stages[p].num_tasks())});
        continue;
      }
      const auto groups = static_cast<size_t>(1 + *std::max_element(group.begin(), group.end()));
      std::vector<uint32_t> event(groups), count(groups, 0);
      for (size_t k = 0; k < groups; ++k)
        event[k] = new_event(fmt::format("{}->{}[{}]", stages[p].name, stages[c].name, k));
      for (size_t t = 0; t < group.size(); ++t) {
        const auto k = static_cast<size_t>(group[t]);
        notifies[p][t].push_back(event[k]);
        ++count[k];
      }
      for (size_t t = 0; t < waits[c].size(); ++t) {
        const auto k = static_cast<size_t>(own[t]);
        waits[c][t].push_back({event[k], count[k]});
      }
    }
  }

  program.tasks.assign(static_cast<size_t>(program.workers), {});
  for (size_t s = 0; s < n; ++s) {
    const int tasks = stages[s].num_tasks();
    for (int t = 0; t < tasks; ++t) {
      Task task;
      task.stage = static_cast<uint32_t>(s);
      task.index = static_cast<uint32_t>(t);
      task.wait_begin = static_cast<uint32_t>(program.waits.size());
      const auto& w = waits[s][static_cast<size_t>(t)];
      program.waits.insert(program.waits.end(), w.begin(), w.end());
      task.wait_end = static_cast<uint32_t>(program.waits.size());
      task.notify_begin = static_cast<uint32_t>(program.notifies.size());
      const auto& k = notifies[s][static_cast<size_t>(t)];
      program.notifies.insert(program.notifies.end(), k.begin(), k.end());
      task.notify_end = static_cast<uint32_t>(program.notifies.size());
      program.tasks[static_cast<size_t>(int64_t{t} * program.workers / tasks)].push_back(task);
    }
  }
  return {};
}

}  // namespace redline
