// Bounds of images, checked before anything is allocated for their pixels.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "media/rgb_image.h"

namespace redline {

/// Checks the size of an image. invalid_argument: no pixels, a side above kMaxImageSide, more than kMaxImagePixels, or
/// more pixels than a file of `file_bytes` can hold at `max_pixels_per_byte`. `name` begins the message.
Status check_image_size(const std::string& name, int64_t width, int64_t height, int64_t file_bytes,
                        int64_t max_pixels_per_byte);

}  // namespace redline
