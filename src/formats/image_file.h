// Reads images of any supported format.
#pragma once

#include <string>

#include "base/error.h"
#include "formats/rgb_image.h"

namespace redline {

/// A PNG or JPEG file, by content. Errors as decode_png and decode_jpeg; unsupported: another format.
Result<RgbImage> read_image(const std::string& path);

}  // namespace redline
