// A queue of long, blocking jobs, which one thread runs in order.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace redline::server {

/// The queue. Thread-safe.
class WorkQueue {
 public:
  /// A job. `goes_on()` returns false when the queue is closed; the job should then end soon. It must not throw.
  using Job = std::function<void(const std::function<bool()>& goes_on)>;
  WorkQueue() = default;
  ~WorkQueue() { close(); }
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  /// Adds a job. The first one starts the thread. std::system_error: the system cannot start a thread.
  void push(Job job);
  /// Returns when every job has ended. Later jobs run at once, on the thread that adds them.
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
