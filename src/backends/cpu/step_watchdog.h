// Detects steps without progress and reports what each worker does.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace redline {

/// A thread that detects stalled steps. Workers that wait for another worker notice a stall themselves (Executor), but
/// nothing does if the only worker, or the last one of a step, is stuck in a kernel. The thread checks the running step
/// at intervals and writes a dump to standard error, once per stall. It cannot end the step.
class StepWatchdog {
 public:
  class Step {
   public:
    virtual ~Step() = default;
    /// Returns a value that changes whenever a task ends. Thread-safe, like dump().
    virtual int64_t progress() const = 0;
    virtual std::string dump() const = 0;
  };

  StepWatchdog() = default;
  ~StepWatchdog();
  StepWatchdog(const StepWatchdog&) = delete;
  StepWatchdog& operator=(const StepWatchdog&) = delete;

  /// Watches `step` until end(). A step is stalled when it makes no progress for `seconds`. The first call starts the
  /// thread.
  void begin(const Step& step, double seconds);
  void end();
  /// Returns true while the step is stalled. Thread-safe.
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
