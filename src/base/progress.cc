#include "base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace redline {
namespace {

void write_all(int descriptor, const std::string& text) {
  // A closed terminal must not fail the work: write errors are ignored.
  [[maybe_unused]] const ssize_t written = ::write(descriptor, text.data(), text.size());
}

}  // namespace

Progress::Progress(std::string label, int64_t total, int descriptor)
    : label_(std::move(label)), total_(std::max<int64_t>(total, 1)), descriptor_(descriptor),
      visible_(::isatty(descriptor) == 1) {
  advance(0);
}

Progress::~Progress() {
  if (visible_) write_all(descriptor_, "\r\x1b[K");
}

void Progress::advance(int64_t amount) {
  const int64_t done = done_.fetch_add(amount, std::memory_order_relaxed) + amount;
  if (!visible_) return;
  const int percent = static_cast<int>(std::clamp<int64_t>(done, 0, total_) * 100 / total_);
  if (percent > shown_percent_.load(std::memory_order_relaxed)) draw(percent);
}

void Progress::draw(int percent) {
  constexpr int kWidth = 30;
  const std::scoped_lock lock(drawing_);
  if (percent <= shown_percent_.load(std::memory_order_relaxed)) return;  // another thread was ahead
  shown_percent_.store(percent, std::memory_order_relaxed);
  const int filled = percent * kWidth / 100;
  write_all(descriptor_, fmt::format("\r{} [{:=<{}}{:<{}}] {:3}%", label_, "", filled, "", kWidth - filled, percent));
}

}  // namespace redline
