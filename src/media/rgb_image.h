// Size limits of the image readers, and the type of the text in image files.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "redline/rgb_image.h"

namespace redline {

/// Maximum side and pixels of an image: large enough for the photos of a phone (50 megapixels), small compared to
/// memory.
inline constexpr int64_t kMaxImageSide = 32768, kMaxImagePixels = int64_t{1} << 26;

/// Text by key: chunks of a PNG, and the EXIF fields of media/exif.h.
using ImageText = std::map<std::string, std::string>;

}  // namespace redline
