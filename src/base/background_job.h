// A thread that runs one function at a time in the background.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>

namespace redline {

/// start() and wait() are called by one thread at a time.
class BackgroundJob {
 public:
  BackgroundJob() = default;
  BackgroundJob(const BackgroundJob&) = delete;
  BackgroundJob& operator=(const BackgroundJob&) = delete;
  ~BackgroundJob() {
    wait();
    {
      std::lock_guard lock(mutex_);
      stops_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  /// Runs `job` on the thread, or in the caller if the system cannot start a thread. The caller must have waited for
  /// the previous job.
  void start(std::function<void()> job) {
    try {
      if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    } catch (const std::system_error&) {
      return job();
    }
    {
      std::lock_guard lock(mutex_);
      job_ = std::move(job);
    }
    changed_.notify_all();
  }
  /// Returns when the job is done, or at once if there is none.
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !job_; });
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return job_ || stops_; });
      if (!job_) return;
      lock.unlock();
      job_();
      lock.lock();
      job_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> job_;  ///< changed only while no job runs, or by the thread when the job is done
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace redline
