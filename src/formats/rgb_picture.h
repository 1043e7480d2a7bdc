// How large a picture a reader takes.
#pragma once

#include <cstdint>

#include "redline/picture.h"

namespace redline {

/// What a reader takes: enough for any picture that one would start from, a small part of memory.
inline constexpr int64_t kMostPictureSide = 32768, kMostPicturePixels = int64_t{1} << 24;

}  // namespace redline
