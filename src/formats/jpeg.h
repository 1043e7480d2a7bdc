// JPEG decoding with libjpeg-turbo.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "formats/rgb_image.h"

namespace redline {

/// Baseline and progressive, grayscale or color, as 8-bit RGB with the EXIF orientation applied. invalid_argument:
/// corrupt, truncated, or larger than kMaxImageSide and kMaxImagePixels. unsupported: CMYK.
Result<RgbImage> decode_jpeg(std::string_view bytes, const std::string& name);

}  // namespace redline
