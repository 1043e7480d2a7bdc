// A mutex that is acquired in order of arrival.
#pragma once

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
    turn_.wait(inner, [&] { return serving_ == ticket; });
  }
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
};

}  // namespace redline
