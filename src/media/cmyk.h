// Converts CMYK inks to RGB.
#pragma once

#include <cstdint>

namespace redline {

/// Converts four inks to RGB like Pillow's convert("RGB"): (255 - ink) * (255 - key) / 255. 255 is full coverage.
inline void rgb_of_cmyk(const uint8_t* cmyk, uint8_t* rgb) {
  const int light = 255 - cmyk[3];
  for (int c = 0; c < 3; ++c) {
    const int product = cmyk[c] * light + 128;
    rgb[c] = static_cast<uint8_t>(light - (((product >> 8) + product) >> 8));
  }
}

}  // namespace redline
