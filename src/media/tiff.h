// TIFF files (Adobe's TIFF 6.0): the images that scanners, cameras and editors write.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "media/rgb_image.h"

namespace redline {

/// The first image of a file, with its orientation applied: gray, palette, RGB and CMYK of 8 or 16 bits, gray and
/// palette of 1, 2 and 4 too; in strips or tiles, interleaved or by planes; uncompressed, PackBits, LZW or Deflate.
/// 16-bit samples keep the upper 8. `alpha`, if given, receives the transparency [height, width], empty if the file has
/// none.
/// invalid_argument: corrupt, truncated, or larger than kMaxImageSide and kMaxImagePixels. unsupported, by name:
/// other compressions (JPEG, fax), floating-point samples, colours other than these, and BigTIFF.
Result<RgbImage> decode_tiff(std::string_view bytes, const std::string& name, std::vector<uint8_t>* alpha = nullptr);

}  // namespace redline
