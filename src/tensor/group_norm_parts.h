// Partition of an item's pixels for the statistics of a group norm.
#pragma once

#include <cstdint>

namespace redline {

/// Statistics of an item are computed in parts of at least 64 pixels and merged in order. The number of parts depends
/// only on the item's size, so results do not depend on the number of workers.
inline constexpr int64_t kGroupNormMaxParts = 64, kGroupNormPartPixels = 64;
constexpr int64_t group_norm_parts(int64_t pixels) {
  const int64_t parts = pixels / kGroupNormPartPixels;
  return parts < 1 ? 1 : parts > kGroupNormMaxParts ? kGroupNormMaxParts : parts;
}
constexpr int64_t group_norm_part_begin(int64_t pixels, int64_t part) {
  return pixels * part / group_norm_parts(pixels);
}

}  // namespace redline
