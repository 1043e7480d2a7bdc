// Processor time of the calling thread. Unlike wall time it excludes the time that other programs use.
#pragma once

#include <ctime>

namespace redline {

inline double thread_seconds() {
  timespec t = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace redline
