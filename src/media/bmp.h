// BMP files (Windows bitmaps; Microsoft's BITMAPINFOHEADER and its predecessors and successors).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "media/rgb_image.h"

namespace redline {

/// Decodes a BMP file as Pillow does: with a palette of 1, 4 or 8 bits a pixel, or with 16, 24 or 32 bits a pixel and
/// any channel masks. `alpha`, if given, receives the transparency [height, width], empty if the file has none.
/// invalid_argument: corrupt, truncated, or larger than kMaxImageSide and kMaxImagePixels. unsupported: run lengths,
/// and a JPEG or PNG within.
Result<RgbImage> decode_bmp(std::string_view bytes, const std::string& name, std::vector<uint8_t>* alpha = nullptr);

}  // namespace redline
