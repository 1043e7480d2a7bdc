#include "graph/check_program.h"

#include <algorithm>
#include <map>

#include "graph/external_values.h"

namespace redline {
namespace {

constexpr int64_t kElementBytes = 4, kTokenBytes = int64_t{1} << 20;

using Clock = std::vector<uint32_t>;  // [workers] tasks of each list that are known to be done
void join(Clock& into, const Clock& other) {
  for (size_t w = 0; w < into.size(); ++w) into[w] = std::max(into[w], other[w]);
}

/// Bytes [begin, end) of the arena; `end` is stored as the key of the next range.
struct TouchedBytes {
  int writer = -1, writer_worker = -1;
  uint32_t writer_place = 0;
  Clock readers;  // [workers] the last task of each list that has read since, counted from 1; empty: none
};

class ProgramChecker {
 public:
  ProgramChecker(const Program& program, const SymbolValues& sizes)
      : program_(program), schedule_(program.schedule_of(sizes)), sizes_(sizes), workers_(schedule_.tasks.size()) {}
  Status run();

 private:
  struct ValueRows {
    int64_t offset = 0, bytes = 0, cols = 0;
  };
  Status check_events();
  void place_values();
  Status walk();
  bool can_run(const Task& task) const;
  Status run_task(size_t worker, const Task& task, uint32_t place);
  Status touch(size_t stage, ValueId value, const Tile& tile, Reads how, bool is_write);
  Status touch_bytes(size_t stage, ValueId value, int64_t begin, int64_t end, bool is_write);
  void split_at(int64_t at);
  Status unordered(size_t stage, int other, ValueId value, int64_t begin, int64_t end) const;

  const Program& program_;
  const TaskSchedule& schedule_;
  const SymbolValues& sizes_;
  size_t workers_;
  std::map<ValueId, ValueRows> values_;
  std::vector<uint32_t> notified_;          // by event
  std::vector<Clock> event_clock_, clock_;  // by event, by worker
  std::map<int64_t, TouchedBytes> touched_;
  size_t worker_ = 0;  // of the task that runs
  uint32_t place_ = 0;
};

Status ProgramChecker::check_events() {
  std::vector<uint32_t> total(schedule_.num_events, 0);
  for (const std::vector<Task>& list : schedule_.tasks)
    for (const Task& task : list)
      for (uint32_t n = task.notify_begin; n < task.notify_end; ++n) ++total[schedule_.notifies[n]];
  for (const std::vector<Task>& list : schedule_.tasks)
    for (const Task& task : list)
      for (uint32_t w = task.wait_begin; w < task.wait_end; ++w) {
        const Wait& wait = schedule_.waits[w];
        if (wait.count != total[wait.event])
          return internal("program {}: {} waits for {} notifications of event {}, which has {}", program_.name,
                          program_.stages[task.stage].name, wait.count, schedule_.event_names[wait.event],
                          total[wait.event]);
      }
  return {};
}

void ProgramChecker::place_values() {
  int64_t beyond = program_.arena_plan.bytes;
  for (const ArenaBlock& block : program_.arena_plan.blocks) {
    ValueRows& value = values_[block.value];
    value = {block.offset, block.bytes, 1};
    // Values without bytes order stages: here, each has a place of its own, of which every task has a share.
    if (block.bytes == 0) {
      value = {beyond, kTokenBytes, 0};
      beyond += kTokenBytes;
    }
  }
  // External values have no rows in the arena.
  for (const auto* ports : {&program_.inputs, &program_.outputs}) {
    for (const Program::Port& port : *ports) {
      if (!is_external_name(port.name)) continue;
      const int64_t bytes = num_elements(port.shape).eval(sizes_) * kElementBytes;
      values_[port.value] = {beyond, bytes, 1};
      beyond += bytes;
    }
  }
  const auto set_cols = [&](ValueId id, int64_t cols) {
    if (const auto at = values_.find(id); at != values_.end() && at->second.cols != 0) at->second.cols = cols;
  };
  for (const Program::Port& port : program_.inputs)
    set_cols(port.value, port.shape.size() > 1 ? port.shape[1].eval(sizes_) : 1);
  for (const StagePlan& stage : program_.stages)
    for (const ValueId id : stage.writes) set_cols(id, stage.grid.cols);
}

bool ProgramChecker::can_run(const Task& task) const {
  for (uint32_t w = task.wait_begin; w < task.wait_end; ++w)
    if (notified_[schedule_.waits[w].event] < schedule_.waits[w].count) return false;
  return true;
}

void ProgramChecker::split_at(int64_t at) {
  auto next = touched_.upper_bound(at);
  const auto here = std::prev(next);
  if (here->first != at) touched_.emplace_hint(next, at, here->second);
}

Status ProgramChecker::unordered(size_t stage, int other, ValueId value, int64_t begin, int64_t end) const {
  return internal("program {}: {} and {} touch bytes [{}, {}) of the arena (value {}), and no event orders them",
                  program_.name, program_.stages[static_cast<size_t>(other)].name, program_.stages[stage].name, begin,
                  end, value);
}

Status ProgramChecker::touch_bytes(size_t stage, ValueId value, int64_t begin, int64_t end, bool is_write) {
  if (begin >= end) return {};
  split_at(begin);
  split_at(end);
  const Clock& now = clock_[worker_];
  for (auto at = touched_.find(begin); at->first < end; ++at) {
    TouchedBytes& bytes = at->second;
    if (bytes.writer >= 0 && now[static_cast<size_t>(bytes.writer_worker)] < bytes.writer_place)
      return unordered(stage, bytes.writer, value, begin, end);
    if (!is_write) {
      if (bytes.readers.empty()) bytes.readers.resize(workers_);
      bytes.readers[worker_] = place_;
      continue;
    }
    for (size_t w = 0; w < bytes.readers.size(); ++w)
      if (w != worker_ && bytes.readers[w] > now[w])
        return unordered(stage, static_cast<int>(schedule_.tasks[w][bytes.readers[w] - 1].stage), value, begin, end);
    bytes = {static_cast<int>(stage), static_cast<int>(worker_), place_, {}};
  }
  return {};
}

Status ProgramChecker::touch(size_t stage, ValueId value, const Tile& tile, Reads how, bool is_write) {
  const auto at = values_.find(value);
  if (at == values_.end()) return {};  // weights and states
  const ValueRows& v = at->second;
  const TaskGrid& grid = schedule_.grids[stage];
  if (v.cols == 0 || grid.kind == TaskGrid::Kind::kWork) {
    const int64_t n = is_write ? grid.num_tasks() : 1, i = is_write ? tile.index : 0;
    return touch_bytes(stage, value, v.offset + v.bytes * i / n, v.offset + v.bytes * (i + 1) / n, is_write);
  }
  if (how == Reads::kAll) return touch_bytes(stage, value, v.offset, v.offset + v.bytes, is_write);
  const int64_t stride = v.cols * kElementBytes;
  const bool all_rows = reads_all_rows(how);
  const int64_t row_begin = all_rows ? 0 : tile.row_begin, row_end = all_rows ? v.bytes / stride : tile.row_end;
  const int64_t col_begin = reads_all_cols(how) ? 0 : std::min(tile.col_begin, v.cols);
  const int64_t col_end = reads_all_cols(how) ? v.cols : std::min(tile.col_end, v.cols);
  if (col_begin == 0 && col_end == v.cols)
    return touch_bytes(stage, value, v.offset + row_begin * stride, v.offset + row_end * stride, is_write);
  for (int64_t row = row_begin; row < row_end; ++row) {
    const int64_t first = v.offset + row * stride;
    REDLINE_TRY(
        touch_bytes(stage, value, first + col_begin * kElementBytes, first + col_end * kElementBytes, is_write));
  }
  return {};
}

Status ProgramChecker::run_task(size_t worker, const Task& task, uint32_t place) {
  worker_ = worker;
  place_ = place;
  Clock& clock = clock_[worker];
  for (uint32_t w = task.wait_begin; w < task.wait_end; ++w) join(clock, event_clock_[schedule_.waits[w].event]);
  clock[worker] = place;
  const StagePlan& stage = program_.stages[task.stage];
  const TaskGrid& grid = schedule_.grids[task.stage];
  const Tile tile = grid.tile(static_cast<int32_t>(task.index), grid.rows.eval(sizes_), sizes_);
  for (const StageRead& read : stage.reads) REDLINE_TRY(touch(task.stage, read.value, tile, read.reads, false));
  for (const ValueId id : stage.writes) REDLINE_TRY(touch(task.stage, id, tile, Reads::kTile, true));
  for (uint32_t n = task.notify_begin; n < task.notify_end; ++n) {
    join(event_clock_[schedule_.notifies[n]], clock);
    ++notified_[schedule_.notifies[n]];
  }
  return {};
}

Status ProgramChecker::walk() {
  notified_.assign(schedule_.num_events, 0);
  event_clock_.assign(schedule_.num_events, Clock(workers_, 0));
  clock_.assign(workers_, Clock(workers_, 0));
  touched_ = {{INT64_MIN, {}}, {INT64_MAX, {}}};
  std::vector<size_t> next(workers_, 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t w = 0; w < workers_; ++w)
      for (const std::vector<Task>& list = schedule_.tasks[w]; next[w] < list.size() && can_run(list[next[w]]);) {
        ++next[w];
        REDLINE_TRY(run_task(w, list[next[w] - 1], static_cast<uint32_t>(next[w])));
        moved = true;
      }
  }
  for (size_t w = 0; w < workers_; ++w) {
    if (next[w] == schedule_.tasks[w].size()) continue;
    const Task& task = schedule_.tasks[w][next[w]];
    for (uint32_t i = task.wait_begin; i < task.wait_end; ++i) {
      const Wait& wait = schedule_.waits[i];
      if (notified_[wait.event] < wait.count)
        return internal("program {}: {} waits for event {}, which is never notified: {} of {} notifications",
                        program_.name, program_.stages[task.stage].name, schedule_.event_names[wait.event],
                        notified_[wait.event], wait.count);
    }
  }
  return {};
}

Status ProgramChecker::run() {
  REDLINE_TRY(check_events());
  place_values();
  return walk();
}

}  // namespace

Status check_program(const Program& program, const SymbolValues& sizes) { return ProgramChecker(program, sizes).run(); }

}  // namespace redline
