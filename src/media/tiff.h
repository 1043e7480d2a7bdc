// TIFF files (Adobe's TIFF 6.0): the images that scanners, cameras and editors write.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "media/rgb_image.h"

namespace redline {

/// Decodes the first image of a file and applies its orientation. Supported are gray, palette, RGB and CMYK with 8 or
/// 16 bits a sample, gray and palette also with 1, 2 and 4; strips and tiles; interleaved and planar samples;
/// uncompressed, PackBits, LZW and Deflate data. 16-bit samples keep the upper 8 bits. `alpha`, if given, receives the
/// transparency [height, width], empty if the file has none.
/// invalid_argument: corrupt, truncated, or larger than kMaxImageSide and kMaxImagePixels. unsupported, the message
/// states which: other compressions (JPEG, fax), floating-point samples, other kinds of colours, and BigTIFF.
Result<RgbImage> decode_tiff(std::string_view bytes, const std::string& name, std::vector<uint8_t>* alpha = nullptr);

}  // namespace redline
