// Runs a Program on CPU workers, step after step. A step allocates nothing and has no barrier: workers walk their own
// task lists and wait only for the events of each task.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "base/worker_team.h"
#include "graph/program.h"
#include "runtime/timeline.h"

namespace redline {

struct ExecutorOptions {
  double hang_seconds = 30;      ///< a step without progress for this long ends with a dump; 0: never
  Timeline* timeline = nullptr;  ///< outlives the executor
};

class Executor {
 public:
  /// `program` and `team` outlive the executor; team.size() == program.workers.
  Executor(const Program& program, WorkerTeam& team, ExecutorOptions options = {});

  /// Runs all tasks once and returns when every worker is done. Inputs are written before, outputs read after, through
  /// the program's ports.
  /// invalid_argument: a size above its bound. out_of_memory: room for the workers' scratch. internal: no progress for
  /// hang_seconds; the message is the dump (who runs what, who waits for which event and how far it counted), and the
  /// executor refuses further steps.
  Status step(const StepContext& context);

  int64_t steps() const { return step_; }
  /// A step made no progress and was given up. Any thread may ask.
  bool gave_up() const { return aborted_.load(); }

 private:
  struct alignas(64) Counter {
    std::atomic<uint64_t> value{0};
  };
  struct alignas(64) Worker {
    std::atomic<uint32_t> task{0};   ///< place in its list
    std::atomic<int64_t> event{-1};  ///< the one it waits for, -1 when it runs
    WorkerContext context;
  };
  int64_t scratch_bytes_per_worker() const;
  void run_worker(int worker);
  bool wait(int worker, uint32_t event, uint64_t target);
  /// What one wait has seen of the others.
  struct Watch {
    int64_t progress = -1, quiet_ns = 0, looked_ns = 0;
  };
  bool hangs(Watch& watch) const;
  void give_up(int worker);
  std::string dump() const;

  const Program& program_;
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
