#include "backends/cpu/step_watchdog.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <system_error>

namespace redline {
namespace {

constexpr double kMaxBetweenLooks_s = 1;

}  // namespace

StepWatchdog::~StepWatchdog() {
  {
    std::lock_guard lock(mutex_);
    stops_ = true;
  }
  stopping_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StepWatchdog::begin(const Step& step, double seconds) {
  std::lock_guard lock(mutex_);
  step_ = &step;
  seconds_ = seconds;
  ++steps_;
  if (thread_.joinable()) return;
  try {
    thread_ = std::thread([this] { watch(); });
  } catch (const std::system_error&) {  // no thread: the watchdog is disabled
  }
}

void StepWatchdog::end() {
  std::lock_guard lock(mutex_);
  step_ = nullptr;
  is_stalled_.store(false, std::memory_order_relaxed);
}

void StepWatchdog::watch() {
  using Clock = std::chrono::steady_clock;
  std::unique_lock lock(mutex_);
  uint64_t steps = 0;
  int64_t progress = -1;
  double quiet_s = 0;
  auto looked = Clock::now();
  while (!stops_) {
    const double wait_s = std::min(kMaxBetweenLooks_s, seconds_ / 4);
    stopping_.wait_for(lock, std::chrono::duration<double>(wait_s), [&] { return stops_; });
    const auto now = Clock::now();
    // A long gap between two looks means that the whole process was stopped.
    const double elapsed_s = std::min(std::chrono::duration<double>(now - looked).count(), 2 * wait_s);
    looked = now;
    if (!step_) continue;
    const int64_t current = step_->progress();
    if (steps != steps_ || current != progress) {
      steps = steps_;
      progress = current;
      quiet_s = 0;
      is_stalled_.store(false, std::memory_order_relaxed);
      continue;
    }
    quiet_s += elapsed_s;
    if (quiet_s < seconds_ || is_stalled()) continue;
    const std::string text = fmt::format("redline: no progress for {} s\n{}", seconds_, step_->dump());
    is_stalled_.store(true, std::memory_order_relaxed);
    std::fputs(text.c_str(), stderr);  // with the mutex: it is out before the step can end
  }
}

}  // namespace redline
