// The access log: lines that a thread of its own writes, so that whoever reads them holds up no answer.
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

/// Thread-safe.
class AccessLog {
 public:
  /// Lines that wait for a reader; further ones are lost, and counted.
  static constexpr size_t kMaxWaiting = 8192;
  /// Each text of an entry is cut to so many bytes.
  static constexpr size_t kMaxText = 256;

  /// `file` must outlive this object; it is written through its descriptor.
  explicit AccessLog(std::FILE* file);
  /// Writes what waits, as long as the file takes it: for at most a second.
  ~AccessLog();
  /// As one line of ASCII, whatever the texts of the object hold.
  void write(const Json& entry);
  /// Returns when the lines before it are written or lost, or the file takes none for a second.
  void flush();
  /// Lines that could not be written.
  int64_t num_lost() const { return num_lost_.load(std::memory_order_relaxed); }

  /// The line of an entry, without its end.
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
  bool has_told_ = false;     ///< of the thread: that lines are lost
  int64_t num_reported_ = 0;  ///< of the thread: lost lines that the log itself tells of
  std::thread thread_;
};

}  // namespace redline::server
