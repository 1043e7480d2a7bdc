#include "server/access_log.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstring>
#include <utility>

namespace redline::server {
namespace {

constexpr int kPatienceMs = 1000;  // maximum time that the log waits for its reader at the end
constexpr int kLookMs = 50;

}  // namespace

AccessLog::AccessLog(std::FILE* file) : file_(file), descriptor_(fileno(file)) {
  thread_ = std::thread([this] { run(); });
}

AccessLog::~AccessLog() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

std::string AccessLog::line_of(const Json& entry) {
  Json bounded = entry;
  for (auto& [name, value] : bounded.items()) {
    if (!value.is_string()) continue;
    auto& text = value.get_ref<std::string&>();
    if (text.size() > kMaxText) text = text.substr(0, kMaxText) + "...";
  }
  // The line is ASCII, because some readers also end a line at U+0085, U+2028 and U+2029. Invalid UTF-8 becomes U+FFFD.
  std::string line = bounded.dump(-1, ' ', true, Json::error_handler_t::replace);
  for (size_t at = 0; (at = line.find('\x7f', at)) != std::string::npos;) line.replace(at, 1, "\\u007f");
  return line;
}

void AccessLog::write(const Json& entry) {
  std::string line = line_of(entry) + "\n";
  const std::lock_guard lock(mutex_);
  if (lines_.size() >= kMaxWaiting) {
    num_lost_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  lines_.push_back(std::move(line));
  changed_.notify_all();
}

void AccessLog::flush() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::milliseconds(kPatienceMs),
                    [&] { return is_stalled_ || (lines_.empty() && !is_writing_); });
}

/// Writes a line. Returns false if it is lost. A pipe that is ready takes PIPE_BUF bytes at once, so a write does not
/// block.
bool AccessLog::put(const std::string& line) {
  if (descriptor_ < 0) return std::fwrite(line.data(), 1, line.size(), file_) == line.size() && std::fflush(file_) == 0;
  int waited_ms = 0;
  for (size_t written = 0; written < line.size();) {
    pollfd ready{descriptor_, POLLOUT, 0};
    const int found = poll(&ready, 1, kLookMs);
    if (found < 0 && errno != EINTR) return false;
    if (found <= 0) {
      const std::lock_guard lock(mutex_);
      if (!std::exchange(is_stalled_, true)) changed_.notify_all();
      waited_ms += kLookMs;
      if (is_closing_ && waited_ms >= kPatienceMs) {
        errno = EAGAIN;
        return false;
      }
      continue;
    }
    const ssize_t n = ::write(descriptor_, line.data() + written, std::min<size_t>(line.size() - written, PIPE_BUF));
    if (n < 0 && errno != EINTR && errno != EAGAIN) return false;
    if (n > 0) written += static_cast<size_t>(n);
  }
  return true;
}

void AccessLog::run() {
  pthread_setname_np(pthread_self(), "access-log");
  sigset_t broken_pipe;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  // if the reader has gone, write() returns an error instead of raising a signal
  pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return is_closing_ || !lines_.empty(); });
    if (lines_.empty()) return;
    if (is_closing_ && is_stalled_) {  // the reader has had its time
      num_lost_.fetch_add(static_cast<int64_t>(lines_.size()), std::memory_order_relaxed);
      return;
    }
    std::string line = std::move(lines_.front());
    lines_.pop_front();
    is_writing_ = true;
    lock.unlock();
    const bool is_written = put(line);
    const int error = errno;
    if (!is_written) {
      num_lost_.fetch_add(1, std::memory_order_relaxed);
      if (!std::exchange(has_told_, true))
        fmt::print(stderr, "redline: the access log cannot be written: {}; lines are lost\n", std::strerror(error));
    } else if (const int64_t lost = num_lost(); lost > num_reported_) {
      if (put(line_of({{"lost_lines", lost - num_reported_}}) + "\n")) num_reported_ = lost;
    }
    lock.lock();
    is_writing_ = false;
    if (is_written) is_stalled_ = false;
    changed_.notify_all();
  }
}

}  // namespace redline::server
