// The access log. A thread of its own writes the lines, so that a slow reader of the log delays no answer.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "server/json.h"

namespace redline::server {

/// The access log. Thread-safe.
class AccessLog {
 public:
  /// Maximum number of lines waiting to be written; further ones are dropped and counted.
  static constexpr size_t kMaxWaiting = 8192;
  /// Maximum bytes of each text of an entry; longer ones are cut.
  static constexpr size_t kMaxText = 256;

  /// `file` must outlive this object; the log writes to its descriptor.
  explicit AccessLog(std::FILE* file);
  /// Writes the waiting lines as long as the file accepts them, for at most a second.
  ~AccessLog();
  /// Adds an entry as one line of ASCII, whatever bytes its texts hold.
  void write(const Json& entry);
  /// Returns when the lines before it are written or dropped, or when the file has accepted none for a second.
  void flush();
  /// Returns the number of lines that could not be written.
  int64_t num_lost() const { return num_lost_.load(std::memory_order_relaxed); }

  /// Returns the line of an entry, without its end.
  static std::string line_of(const Json& entry);

 private:
  void run();
  bool put(const std::string& line);

  std::FILE* const file_;
  const int descriptor_;
  std::atomic<int64_t> num_lost_{0};
  std::mutex mutex_;  ///< guards the members below
  std::condition_variable changed_;
  std::deque<std::string> lines_;
  bool is_closing_ = false, is_writing_ = false, is_stalled_ = false;
  bool has_told_ = false;     ///< used by the thread: it has reported on standard error that lines are lost
  int64_t num_reported_ = 0;  ///< used by the thread: lost lines that the log itself has reported
  std::thread thread_;
};

}  // namespace redline::server
