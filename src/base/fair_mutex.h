// A mutex that is acquired in order of arrival.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace redline {

/// For locks that are held for milliseconds and taken again at once: std::mutex lets the same thread in again and again
/// while others wait.
class FairMutex {
 public:
  void lock() {
    std::unique_lock inner(mutex_);
    const uint64_t ticket = next_++;
    waiting_.fetch_add(1, std::memory_order_relaxed);
    turn_.wait(inner, [&] { return serving_ == ticket; });
    waiting_.fetch_sub(1, std::memory_order_relaxed);
  }
  /// Does not lock anything: for the holder, which may let others go first.
  bool has_waiters() const { return waiting_.load(std::memory_order_relaxed) > 0; }
  /// Fails also while others wait.
  bool try_lock() {
    std::lock_guard inner(mutex_);
    if (next_ != serving_) return false;
    ++next_;
    return true;
  }
  void unlock() {
    std::lock_guard inner(mutex_);
    ++serving_;
    turn_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable turn_;
  uint64_t next_ = 0, serving_ = 0;
  std::atomic<int> waiting_{0};
};

}  // namespace redline
