// Wall time since a point of the steady clock.
#pragma once

#include <chrono>

namespace redline {

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}
inline double ms_since(std::chrono::steady_clock::time_point begin) { return 1e3 * seconds_since(begin); }

}  // namespace redline
