#include "lab/bench/peak_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace redline::lab {
namespace {

/// Returns a value of /proc/self/status in bytes, or -1 if it is not there.
int64_t status_bytes(const std::string& name) {
  std::ifstream file("/proc/self/status");
  std::string word;
  int64_t kib = 0;
  while (file >> word)
    if (word == name + ":") return file >> kib ? kib * 1024 : -1;
  return -1;
}

}  // namespace

PeakMemory::PeakMemory() : at_first_(status_bytes("VmRSS")) {}

void PeakMemory::begin() {
  own_ = std::max<int64_t>(0, status_bytes("VmRSS") - at_first_);
  std::ofstream("/proc/self/clear_refs") << "5";  // proc(5): resets the peak
}

int64_t PeakMemory::bytes() const {
  int64_t peak = status_bytes("VmHWM");
  if (peak < 0) {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    peak = int64_t{usage.ru_maxrss} * 1024;
  }
  return peak - own_;
}

}  // namespace redline::lab
