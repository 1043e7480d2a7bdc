// Work that takes long and blocks: one thread runs it, piece after piece.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace redline::server {

/// Thread-safe.
class WorkQueue {
 public:
  /// `goes_on()`: false when the queue is closed; the job ends soon then. It throws nothing.
  using Job = std::function<void(const std::function<bool()>& goes_on)>;
  WorkQueue() = default;
  ~WorkQueue() { close(); }
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  /// The thread starts with the first job. std::system_error: the system has none.
  void push(Job job);
  /// Returns when every job has ended. Later ones run at once, on the thread that brings them.
  void close();

 private:
  void run();
  std::atomic<bool> is_closing_{false};
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::thread thread_;
};

}  // namespace redline::server
