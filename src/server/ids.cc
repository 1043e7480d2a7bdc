#include "server/ids.h"

#include <fmt/format.h>

#include <random>

namespace redline::server {

std::string new_id(const char* prefix) {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{}{:016x}{:08x}", prefix, random(), static_cast<uint32_t>(random()));
}

}  // namespace redline::server
