// Size limits of the image readers.
#pragma once

#include <cstdint>

#include "redline/picture.h"

namespace redline {

/// Large enough for any input image, small compared to memory.
inline constexpr int64_t kMostPictureSide = 32768, kMostPicturePixels = int64_t{1} << 24;

}  // namespace redline
