// BMP files (Windows bitmaps; Microsoft's BITMAPINFOHEADER and its predecessors and successors).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "media/rgb_image.h"

namespace redline {

/// Palettes of 1, 4 and 8 bits, and 16, 24 and 32 bits a pixel with any masks, as Pillow reads them. `alpha`, if given,
/// receives the transparency [height, width], empty if the file has none.
/// invalid_argument: corrupt, truncated, or larger than kMaxImageSide and kMaxImagePixels. unsupported: run lengths,
/// and a JPEG or PNG within.
Result<RgbImage> decode_bmp(std::string_view bytes, const std::string& name, std::vector<uint8_t>* alpha = nullptr);

}  // namespace redline
