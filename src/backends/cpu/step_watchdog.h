// Detects steps without progress and reports what each worker does.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace redline {

/// Workers that wait for another one notice by themselves that it does not come back (Executor). Nobody does while the
/// only worker, or the last one of a step, is stuck in a kernel. A thread looks at the step in progress once in a while
/// and writes a dump of it to standard error, once per stall. It cannot end the step.
class StepWatchdog {
 public:
  class Step {
   public:
    virtual ~Step() = default;
    /// Changes whenever a task ends. Thread-safe, like dump().
    virtual int64_t progress() const = 0;
    virtual std::string dump() const = 0;
  };

  StepWatchdog() = default;
  ~StepWatchdog();
  StepWatchdog(const StepWatchdog&) = delete;
  StepWatchdog& operator=(const StepWatchdog&) = delete;

  /// `step` runs until end(). It is stalled when it makes no progress for `seconds`. Starts the thread the first time.
  void begin(const Step& step, double seconds);
  void end();
  /// Thread-safe.
  bool is_stalled() const { return is_stalled_.load(std::memory_order_relaxed); }

 private:
  void watch();

  std::mutex mutex_;
  std::condition_variable stopping_;
  const Step* step_ = nullptr;
  double seconds_ = 0;
  uint64_t steps_ = 0;
  bool stops_ = false;
  std::atomic<bool> is_stalled_{false};
  std::thread thread_;
};

}  // namespace redline
