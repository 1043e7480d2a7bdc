// Reads and writes JPEG files with libjpeg-turbo.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "media/rgb_image.h"

namespace redline {

/// Encodes an image with quality 95, without chroma subsampling, and with EXIF data unless the text is too long for it.
/// invalid_argument: an empty image, one larger than 65500 pixels in a direction, or rgb of another size.
Result<std::string> encode_jpeg(const RgbImage& image, const ImageText& text = {});
/// Decodes a baseline or progressive, grayscale, color or CMYK file to 8-bit RGB with the EXIF orientation applied.
/// `text`, if given, receives the EXIF text, or a comment with A1111's parameters. invalid_argument: corrupt,
/// truncated, or larger than kMaxImageSide and kMaxImagePixels; progressive files may have a quarter of these pixels.
Result<RgbImage> decode_jpeg(std::string_view bytes, const std::string& name, ImageText* text = nullptr);

}  // namespace redline
