// Reading JPEG files, by libjpeg-turbo.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "formats/rgb_picture.h"

namespace redline {

/// Baseline and progressive, grey or colour, as RGB of 8 bits; turned as the EXIF orientation says.
/// invalid_argument: damaged, cut short, or larger than kMostPictureSide and kMostPicturePixels. unsupported: CMYK.
Result<RgbImage> decode_jpeg(std::string_view bytes, const std::string& name);

}  // namespace redline
