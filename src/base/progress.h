// A bar on a terminal for work that takes long: loading, converting, measuring.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

namespace redline {

/// Draws "label [=====     ]  52%" on one line and wipes it at the end. Silent unless `descriptor` (standard error) is a
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

}  // namespace redline
