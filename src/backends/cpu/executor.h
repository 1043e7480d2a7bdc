// Runs a Program on CPU workers, step after step. A step allocates nothing and has no barrier: each worker goes through
// its own task list and waits only for the events of each task. Idle workers steal unstarted, runnable tasks from the
// far end of a window of another worker's list, because cores differ in speed and another process may occupy one of
// them. Results are bit-identical whichever worker runs a task.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "backends/cpu/cpu_program.h"
#include "backends/cpu/step_watchdog.h"
#include "backends/runner.h"
#include "base/fair_mutex.h"
#include "base/worker_team.h"
#include "graph/timeline.h"

namespace redline {

struct ExecutorOptions {
  double hang_seconds = 30;          ///< a step that makes no progress for this long fails with a dump; 0: never
  Timeline* timeline = nullptr;      ///< must outlive the executor
  StepWatchdog* watchdog = nullptr;  ///< must outlive the executor; watches the steps of executors that take turns
  /// Mutex that the caller of step() holds. A long step unlocks it between two tasks, so that other steps can run, and
  /// resumes after the time that they used. nullptr: a step keeps the workers.
  FairMutex* turns = nullptr;
  double slice_ms = 5;  ///< minimum time that a step keeps the workers
};

class Executor final : public Runner, private StepWatchdog::Step {
 public:
  /// `team` must outlive the executor; team.size() == program.workers.
  Executor(Program program, WorkerTeam& team, ExecutorOptions options = {});

  /// Runs all tasks once and returns when every worker is done. The caller writes inputs before and reads outputs
  /// after, through the program's ports.
  /// invalid_argument: a size exceeds its bound. out_of_memory: the workers' scratch cannot be allocated. internal: no
  /// progress for hang_seconds; the message is a state dump (the task of each worker, the events waited for and their
  /// counts), and the executor refuses further steps.
  Status step(const StepContext& context) override;

  const Program* program() const override { return &program_; }
  const StatePlan& states() const override { return program_.states; }
  Result<std::unique_ptr<StateMemory>> make_state_memory(std::span<const int64_t> num_pages) const override;
  Result<std::unique_ptr<BackendBuffer>> make_buffer(int64_t bytes) const override;
  std::string describe() const override { return program_.to_string(); }
  void* host_input(std::string_view name) override;
  const void* host_output(std::string_view name) const override;
  int64_t resident_arena_bytes() const override { return code_.arena.resident_bytes(); }
  bool bind(std::string_view name, void* data) override;

  int64_t steps() const { return step_; }
  /// Returns true if a step made no progress and was aborted. Thread-safe.
  bool gave_up() const { return aborted_.load(); }

 private:
  struct alignas(64) Counter {
    std::atomic<uint64_t> value{0};
  };
  struct alignas(64) Worker {
    std::atomic<uint32_t> task{0};             ///< index in the worker's task list
    std::atomic<int64_t> event{-1};            ///< event that the worker waits for; -1: it is running
    std::atomic<const Task*> stolen{nullptr};  ///< stolen task that the worker is running
    /// [tasks of this worker], one array per schedule: the last step in which any worker took the task.
    std::unique_ptr<std::atomic<uint32_t>[]> taken[2];
    std::atomic<int64_t> num_stolen{0};  ///< number of tasks this worker has stolen
    size_t victim = 0;                   ///< worker from which this worker last tried to steal
    WorkerContext context;
  };
  int64_t scratch_bytes_per_worker() const;
  void run_worker(int worker);
  /// Runs a task that this worker has taken. `since_ns`: when it started to wait for work.
  void run_task(Worker& self, const Task& task, int64_t since_ns);
  int64_t now_ns() const;  ///< the time of the steady clock; 0 without a timeline
  /// Runs tasks until all are done or the step pauses.
  Status run_slice();
  /// Returns true if this worker must stop before its next task.
  bool pauses(int worker);
  Tile tile_of(const Task& task) const;
  /// Returns the first wait of the task whose event is below its target count, or nullptr.
  const Wait* missing(const Task& task) const;
  bool is_taken(const Worker& owner, uint32_t task) const;
  /// Marks a task as taken. Returns true to exactly one caller per step.
  bool take(Worker& owner, uint32_t task);
  /// Steals and runs one task of the next victim that has one. Sets `since_ns` to the end of that task.
  bool help(Worker& self, int64_t& since_ns);
  /// Waits until the worker's own task number `own` can run or another worker has taken it. Returns false if the step
  /// was aborted or pauses.
  bool wait(Worker& self, uint32_t own, int64_t& since_ns);
  /// Progress of the other workers as observed during one wait.
  struct Watch {
    int64_t progress = -1, quiet_ns = 0, looked_ns = 0;
  };
  bool hangs(Watch& watch) const;
  void give_up(const Worker& self);
  std::string name_of(const Task& task) const;
  int64_t progress() const override;
  std::string dump() const override;

  Program program_;
  CpuProgram& code_;
  std::map<std::string, std::vector<OperandAddress*>, std::less<>> uses_;  ///< operands of external values, by name
  WorkerTeam& team_;
  ExecutorOptions options_;
  uint32_t timeline_program_ = 0;
  /// A schedule of the program and the number of its runs; its events count on from step to step.
  struct ScheduleRun {
    const TaskSchedule* schedule = nullptr;
    std::vector<Counter> counters;
    uint64_t steps = 0;
  };
  /// Returns the schedule of this step.
  const ScheduleRun& run() const { return runs_[current_]; }
  const TaskSchedule& schedule() const { return *run().schedule; }
  const std::vector<Task>& tasks_of(size_t worker) const { return schedule().tasks[worker]; }
  const Counter& counter_of(uint32_t event) const { return run().counters[event]; }
  uint64_t count_of(uint32_t event) const { return counter_of(event).value.load(std::memory_order_acquire); }
  uint64_t target_of(const Wait& wait) const { return wait.count * run().steps; }

  ScheduleRun runs_[2];  ///< the program's own schedule and its wavefront
  size_t current_ = 0;
  std::vector<Worker> workers_;
  std::vector<int64_t> rows_;  ///< this step's value of each Program::row_dims
  StepContext context_;
  int64_t step_ = 0;
  std::atomic<bool> aborted_{false}, pauses_{false};
  int64_t slice_ns_ = 0, slice_end_ns_ = 0;  ///< length and end of the time between two pauses
  std::function<void(int)> body_;
};

}  // namespace redline
