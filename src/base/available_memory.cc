#include "base/available_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

namespace redline {
namespace {

std::optional<int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (!(file >> value)) return std::nullopt;  // "max": no limit
  return value;
}

}  // namespace

int64_t available_memory() {
  int64_t bytes = INT64_MAX;
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("MemAvailable:")) bytes = std::stoll(line.substr(13)) * 1024;
  const auto limit = number_in("/sys/fs/cgroup/memory.max"), used = number_in("/sys/fs/cgroup/memory.current");
  if (limit && used) bytes = std::min(bytes, std::max<int64_t>(0, *limit - *used));
  return bytes;
}

}  // namespace redline
