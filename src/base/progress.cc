#include "base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <system_error>

#include "base/elapsed.h"

namespace redline {
namespace {

std::mutex g_drawing;
Progress* g_shown = nullptr;  // the innermost; guarded by g_drawing

void write_all(int descriptor, const std::string& text) {
  // A closed terminal must not fail the work: write errors are ignored.
  [[maybe_unused]] const ssize_t written = ::write(descriptor, text.data(), text.size());
}

size_t columns_of(int descriptor) {
  winsize size = {};
  return ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string duration_text(double seconds) {
  if (seconds < 0.0995) return fmt::format("{:.{}f} ms", seconds * 1e3, seconds < 0.00995 ? 1 : 0);
  if (seconds < 9.995) return fmt::format("{:.2f} s", seconds);
  if (seconds < 59.5) return fmt::format("{:.0f} s", seconds);
  const int64_t whole = std::llround(seconds);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

Progress::Progress(std::string label, int64_t total, ProgressOptions options)
    : label_(std::move(label)), total_(total), options_(std::move(options)),
      is_terminal_(::isatty(options_.descriptor) == 1) {
  if (!is_terminal_) due_s_ = options_.first_line_s;
  {
    const std::scoped_lock lock(g_drawing);
    if (g_shown) g_shown->erase();
    outer_ = g_shown;
    g_shown = this;
  }
  show(true);
  if (total_ > 0) return;
  try {
    ticker_ = std::thread([this] { tick(); });
  } catch (const std::system_error&) {  // no thread: the time is not shown
  }
}

Progress::~Progress() {
  if (ticker_.joinable()) {
    {
      const std::scoped_lock lock(tick_mutex_);
      is_over_ = true;
    }
    tick_.notify_all();
    ticker_.join();
  }
  const std::scoped_lock lock(g_drawing);
  erase();
  if (g_shown == this) g_shown = outer_;
}

void Progress::tick() {
  std::unique_lock lock(tick_mutex_);
  while (!tick_.wait_for(lock, std::chrono::seconds(1), [this] { return is_over_; })) show(false);
}

void Progress::advance(int64_t amount) {
  done_.fetch_add(amount, std::memory_order_relaxed);
  show(false);
}

namespace {

/// Returns the amount and the rate, such as "1.24 of 3.10 GB" and "35.2 MB/s"; `each` is the time of one byte.
std::pair<std::string, std::string> byte_texts(int64_t done, int64_t total, double each) {
  struct Unit {
    const char* name;
    double bytes;
  };
  constexpr Unit kUnits[] = {{"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"bytes", 1}};
  const auto unit_of = [&](double bytes) {
    for (const Unit& unit : kUnits)
      if (bytes >= unit.bytes) return unit;
    return kUnits[3];
  };
  const auto all = static_cast<double>(total), rate = each > 0 ? 1 / each : 0;
  const Unit unit = unit_of(all), speed = unit_of(rate);
  const int digits = unit.bytes > 1 ? 2 : 0;
  return {fmt::format("{:.{}f} of {:.{}f} {}", static_cast<double>(done) / unit.bytes, digits, all / unit.bytes, digits,
                      unit.name),
          fmt::format(", {:.1f} {}/s", rate / speed.bytes, speed.name)};
}

}  // namespace

std::string Progress::text_of(int64_t done, double seconds, size_t max_size) const {
  if (total_ <= 0) return seconds < 1 ? "" : duration_text(seconds);
  done = std::clamp<int64_t>(done, 0, total_);
  const std::string& unit = options_.unit;
  std::string count =
      unit.empty() ? fmt::format("{}%", done * 100 / total_) : fmt::format("{} {} of {}", unit, done, total_);
  const bool counts_bytes = unit == "byte";
  if (counts_bytes) count = byte_texts(done, total_, 0).first;
  if (done == 0 || done == total_) return count;
  // The first unit includes what is done once.
  const double first = first_s_;
  const double each = done > 1 && seconds > first ? (seconds - first) / static_cast<double>(done - 1)
                                                  : seconds / static_cast<double>(done);
  std::string rate = unit.empty() ? "" : fmt::format(", {} a {}", duration_text(each), unit);
  if (counts_bytes) rate = byte_texts(done, total_, each).second;
  // A second at least, and whole ones: an estimate is no better.
  const double rest = std::max(1.0, std::ceil(each * static_cast<double>(total_ - done)));
  const std::string left =
      rest < 60 ? fmt::format(", {:.0f} s left", rest) : fmt::format(", {} left", duration_text(rest));
  if (count.size() + rate.size() + left.size() <= max_size) return fmt::format("{}{}{}", count, rate, left);
  if (count.size() + left.size() <= max_size) return count + left;
  return count;
}

void Progress::show(bool is_first) {
  const double now = seconds_since(begin_);
  const int64_t done = done_.load(std::memory_order_relaxed);
  double unset = -1;
  if (done > 0) first_s_.compare_exchange_strong(unset, now);
  if (now < due_s_.load(std::memory_order_relaxed)) return;
  const std::scoped_lock lock(g_drawing);
  if (now < due_s_.load(std::memory_order_relaxed) || (is_first && !is_terminal_)) return;  // another thread was ahead
  due_s_ = now + (is_terminal_ ? options_.redraw_s : options_.next_line_s);
  if (is_terminal_) return draw(done, now);
  write_all(options_.descriptor, fmt::format("{}: {}\n", label_, text_of(done, now, SIZE_MAX)));
}

void Progress::draw(int64_t done, double seconds) {
  if (g_shown != this) return;
  constexpr size_t kMaxBar = 30, kMinBar = 8;
  const size_t columns = columns_of(options_.descriptor) - 1;  // the last column would wrap the line
  const size_t taken = std::min(columns, label_.size() + 2);
  const std::string text = text_of(done, seconds, columns - taken);
  const size_t room = columns > taken + text.size() + 2 ? columns - taken - text.size() - 2 : 0;
  const size_t width = std::min(kMaxBar, room);
  std::string line = label_;
  if (total_ > 0 && width >= kMinBar) {
    const auto filled = static_cast<size_t>(std::clamp<int64_t>(done, 0, total_)) * width / static_cast<size_t>(total_);
    line += fmt::format(" [{:=<{}}{:<{}}] {}", "", filled, "", width - filled, text);
  } else if (!text.empty()) {
    line += (total_ > 0 ? ": " : ", ") + text;
  }
  write_all(options_.descriptor, fmt::format("\r{}\x1b[K", line.substr(0, columns)));
  is_drawn_ = true;
}

void Progress::erase() {
  if (is_drawn_) write_all(options_.descriptor, "\r\x1b[K");
  is_drawn_ = false;
}

void Progress::hide_shown() {
  const std::scoped_lock lock(g_drawing);
  if (g_shown) g_shown->erase();
}

}  // namespace redline
