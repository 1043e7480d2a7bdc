// A progress bar on a terminal for long work: loading, converting, measuring.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

namespace redline {

/// Draws "label [===== ] 52%" on one line and erases it at the end. Silent unless `descriptor` (standard error) is a
/// terminal. advance() may be called from several threads.
class Progress {
 public:
  Progress(std::string label, int64_t total, int descriptor = 2);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(int64_t amount = 1);

 private:
  void draw(int percent);

  const std::string label_;
  const int64_t total_;
  const int descriptor_;
  const bool visible_;
  std::atomic<int64_t> done_ = 0;
  std::atomic<int> shown_percent_ = -1;
  std::mutex drawing_;
};

/// A progress bar for work that reports its progress as a fraction from 0 to 1.
class ShareProgress {
 public:
  explicit ShareProgress(std::string label) : bar_(std::move(label), kParts) {}
  void reach(double share) {
    const auto now = static_cast<int64_t>(share * kParts);
    if (now > shown_) bar_.advance(now - shown_);
    shown_ = std::max(shown_, now);
  }

 private:
  static constexpr int64_t kParts = 1000;
  Progress bar_;
  int64_t shown_ = 0;
};

}  // namespace redline
