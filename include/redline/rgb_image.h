// An RGB image.
#pragma once

#include <cstdint>
#include <vector>

namespace redline {

/// RGB, 8 bits per channel.
struct RgbImage {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> rgb;  ///< [height, width, 3], rows from the top
};

}  // namespace redline
