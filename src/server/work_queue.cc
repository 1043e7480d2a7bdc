#include "server/work_queue.h"

#include <utility>

namespace redline::server {

void WorkQueue::push(Job job) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_closing_) {
      if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
      jobs_.push_back(std::move(job));
      changed_.notify_all();
      return;
    }
  }
  job([] { return false; });
}

void WorkQueue::close() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void WorkQueue::run() {
  const auto goes_on = [this] { return !is_closing_; };
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return is_closing_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job(goes_on);
    lock.lock();
  }
}

}  // namespace redline::server
