// Size limits of the image readers.
#pragma once

#include <cstdint>

#include "redline/rgb_image.h"

namespace redline {

/// Large enough for any input image, small compared to memory.
inline constexpr int64_t kMaxImageSide = 32768, kMaxImagePixels = int64_t{1} << 24;

}  // namespace redline
