// Reads and writes WebP files with libwebp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "media/rgb_image.h"

namespace redline {

/// Encodes an image, lossy with quality 90 and with EXIF data. invalid_argument: an empty image, one larger than 16383
/// pixels in a direction, or rgb of another size.
Result<std::string> encode_webp(const RgbImage& image, const ImageText& text = {});
/// Decodes a lossy or lossless file, or the first image of an animation, without alpha and with the EXIF orientation
/// applied. `text`, if given, receives the EXIF text. `alpha`, if given, receives the transparency [height, width],
/// empty if the file has none.
/// invalid_argument: corrupt, truncated, or larger than kMaxImagePixels.
Result<RgbImage> decode_webp(std::string_view bytes, const std::string& name, ImageText* text = nullptr,
                             std::vector<uint8_t>* alpha = nullptr);

}  // namespace redline
