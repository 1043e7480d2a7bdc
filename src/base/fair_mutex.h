// A mutex that is acquired in order of arrival.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace redline {

/// A fair mutex for locks that are held for milliseconds and locked again at once: std::mutex would often give the lock
/// to the same thread while others wait.
class FairMutex {
 public:
  void lock() {
    std::unique_lock inner(mutex_);
    const uint64_t ticket = next_++;
    waiting_.fetch_add(1, std::memory_order_relaxed);
    turn_.wait(inner, [&] { return serving_ == ticket; });
    waiting_.fetch_sub(1, std::memory_order_relaxed);
  }
  /// Returns true if threads wait for the lock. For the holder, which may then let them go first.
  bool has_waiters() const { return waiting_.load(std::memory_order_relaxed) > 0; }
  /// Returns false if the mutex is locked, and also if other threads wait for it.
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
