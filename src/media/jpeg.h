// JPEG files, with libjpeg-turbo.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "media/rgb_image.h"

namespace redline {

/// Quality 95, without chroma subsampling, with EXIF data unless the text is too long for it. invalid_argument: an
/// empty image, one larger than 65500 pixels each way, or rgb of another size.
Result<std::string> encode_jpeg(const RgbImage& image, const ImageText& text = {});
/// Baseline and progressive, grayscale, color or CMYK, as 8-bit RGB with the EXIF orientation applied. `text`, if
/// given, receives the EXIF text, or a comment with A1111's parameters. invalid_argument: corrupt, truncated, or larger
/// than kMaxImageSide and kMaxImagePixels, of which progressive files may have a quarter.
Result<RgbImage> decode_jpeg(std::string_view bytes, const std::string& name, ImageText* text = nullptr);

}  // namespace redline
