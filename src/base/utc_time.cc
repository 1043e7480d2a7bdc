#include "base/utc_time.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <ctime>

namespace redline {
namespace {

std::string to_the_second(int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[64];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts)};
}

}  // namespace

double unix_now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

int64_t unix_time() { return static_cast<int64_t>(unix_now()); }

std::string utc_text(int64_t seconds) { return to_the_second(seconds) + "Z"; }

std::string utc_text_ms(double seconds) {
  const double whole = std::floor(seconds);
  return fmt::format("{}.{:03}Z", to_the_second(static_cast<int64_t>(whole)),
                     static_cast<int>((seconds - whole) * 1000));
}

}  // namespace redline
