// Runs a Program on CPU workers, step after step. A step allocates nothing and has no barrier: workers walk their own
// task lists and wait only for the events of each task. Who would wait takes tasks that a neighbour has not begun and that
// can run now, from the end of its list's next few: cores differ, and another program may hold one of them. Which worker
// runs a task changes no bit of the result.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "backends/cpu/cpu_program.h"
#include "base/worker_team.h"
#include "graph/timeline.h"

namespace redline {

struct ExecutorOptions {
  double hang_seconds = 30;      ///< a step without progress for this long ends with a dump; 0: never
  Timeline* timeline = nullptr;  ///< outlives the executor
};

class Executor final : public ProgramRunner {
 public:
  /// `team` outlives the executor; team.size() == program.workers.
  Executor(Program program, WorkerTeam& team, ExecutorOptions options = {});

  /// Runs all tasks once and returns when every worker is done. Inputs are written before, outputs read after, through
  /// the program's ports.
  /// invalid_argument: a size above its bound. out_of_memory: room for the workers' scratch. internal: no progress for
  /// hang_seconds; the message is the dump (who runs what, who waits for which event and how far it counted), and the
  /// executor refuses further steps.
  Status step(const StepContext& context) override;

  const Program& program() const override { return program_; }
  void* host_input(std::string_view name) override;
  const void* host_output(std::string_view name) const override;
  int64_t resident_arena_bytes() const override { return code_.arena.resident_bytes(); }
  bool bind(std::string_view name, void* data) override;

  int64_t steps() const { return step_; }
  /// A step made no progress and was given up. Any thread may ask.
  bool gave_up() const { return aborted_.load(); }

 private:
  struct alignas(64) Counter {
    std::atomic<uint64_t> value{0};
  };
  struct alignas(64) Worker {
    std::atomic<uint32_t> task{0};                   ///< place in its list
    std::atomic<int64_t> event{-1};                  ///< the one it waits for, -1 when it runs
    std::atomic<const Task*> helps{nullptr};         ///< the neighbour's task that it runs meanwhile
    std::unique_ptr<std::atomic<uint32_t>[]> taken;  ///< [its tasks]: the last step in which somebody took each
    std::atomic<int64_t> helped{0};                  ///< how many of them there were
    size_t neighbour = 0;                            ///< whom it looked at last
    WorkerContext context;
  };
  int64_t scratch_bytes_per_worker() const;
  void run_worker(int worker);
  /// Runs a task that this worker has taken. `since_ns`: when it began to wait for work.
  void run_task(Worker& self, const Task& task, int64_t since_ns);
  int64_t now_ns() const;  ///< 0 without a timeline
  Tile tile_of(const Task& task) const;
  /// The first of its events that has not counted far enough, or nullptr.
  const Wait* missing(const Task& task) const;
  bool is_taken(const Worker& owner, uint32_t task) const;
  /// True for exactly one caller in each step.
  bool take(Worker& owner, uint32_t task);
  /// Runs one task of the next neighbour, if there is one to take. `since_ns` is then the end of that task.
  bool help(Worker& self, int64_t& since_ns);
  /// Until its own task number `own` can run or somebody has taken it. False when the step was given up.
  bool wait(Worker& self, uint32_t own, int64_t& since_ns);
  /// What one wait has seen of the others.
  struct Watch {
    int64_t progress = -1, quiet_ns = 0, looked_ns = 0;
  };
  bool hangs(Watch& watch) const;
  void give_up(const Worker& self);
  std::string name_of(const Task& task) const;
  std::string dump() const;

  Program program_;
  CpuProgram& code_;
  /// Operands that are an external value, by its name.
  struct Use {
    size_t stage, operand;
  };
  std::map<std::string, std::vector<Use>, std::less<>> uses_;
  WorkerTeam& team_;
  ExecutorOptions options_;
  std::vector<Counter> counters_;
  std::vector<Worker> workers_;
  std::vector<int64_t> rows_;  ///< this step's value of each Program::row_dims
  StepContext context_;
  int64_t step_ = 0;
  std::atomic<bool> aborted_{false};
  std::function<void(int)> body_;
};

}  // namespace redline
