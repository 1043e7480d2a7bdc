// The progress of long work on standard error: loading, generating, converting, measuring.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace redline {

struct ProgressOptions {
  /// "step": units are counted, with the time of one; "byte": shown with their rate; "": a percentage.
  std::string unit;
  int descriptor = 2;
  double redraw_s = 0.1;  ///< minimum time between two redraws
  /// Times for descriptors that are not a terminal: until the first text line, and between the following ones.
  double first_line_s = 10, next_line_s = 30;
};

/// Shows progress. On a terminal it is one line, "label [=====     ] step 3 of 28, 1.24 s a step, 31 s left", which
/// fits the width and is erased at the end; elsewhere a text line at intervals. advance() may be called from several
/// threads.
class Progress {
 public:
  /// Starts showing progress. `total` 0: unknown, as while a model is loaded; the line then shows the elapsed time.
  Progress(std::string label, int64_t total, ProgressOptions options = {});
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(int64_t amount = 1);
  /// Erases the line that is shown, if any, so that other output begins on an empty line. The next advance() draws it
  /// again.
  static void hide_shown();

 private:
  using Clock = std::chrono::steady_clock;

  void show(bool is_first);
  void draw(int64_t done, double seconds);
  void erase();
  /// Returns the text after the label: the finished part, and the rate and the remaining time as far as `max_size`
  /// characters have room for them. "" while nothing is known.
  std::string text_of(int64_t done, double seconds, size_t max_size) const;
  void tick();

  const std::string label_;
  const int64_t total_;
  const ProgressOptions options_;
  const bool is_terminal_;
  const Clock::time_point begin_ = Clock::now();
  std::atomic<int64_t> done_ = 0;
  std::atomic<double> first_s_ = -1;  ///< time at which the first unit was done
  std::atomic<double> due_s_ = 0;     ///< time of the next redraw or text line
  bool is_drawn_ = false;             ///< guarded by the drawing mutex, like the list of instances
  Progress* outer_ = nullptr;         ///< the instance that was shown before this one
  std::thread ticker_;
  std::mutex tick_mutex_;
  std::condition_variable tick_;
  bool is_over_ = false;
};

/// Returns "12 ms", "1.24 s", "3 min 20 s" or "1 h 12 min".
std::string duration_text(double seconds);

/// Progress of work that is reported as a fraction from 0 to 1.
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
