// Pictures to start from, whatever their format.
#pragma once

#include <string>

#include "base/error.h"
#include "formats/rgb_picture.h"

namespace redline {

/// A PNG or JPEG file, by its content. Errors as decode_png and decode_jpeg; unsupported: another kind of file.
Result<RgbImage> read_picture(const std::string& path);

}  // namespace redline
