// PNG files, by libpng.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/error.h"
#include "formats/rgb_picture.h"

namespace redline {

using PngText = std::map<std::string, std::string>;

/// A whole file: 8 bits a channel, with text chunks ({"parameters", "..."}; keys of 1 to 79 Latin-1 characters, values
/// UTF-8). invalid_argument: a picture without pixels, or rgb of another size.
Result<std::string> encode_png(const RgbImage& picture, const PngText& text = {});
/// Under a temporary name first. io: as the system says.
Status write_png(const std::string& path, const RgbImage& picture, const PngText& text = {});

/// Any PNG as RGB of 8 bits, as Pillow's convert("RGB") gives it: grey repeated, palettes looked up, transparency left
/// out, of 16 bits the upper 8. `text`, when given, takes its text chunks.
/// invalid_argument: damaged, or larger than kMostPictureSide and kMostPicturePixels; the message gives libpng's
/// reason. Memory beyond the result is a small part of it, and nothing large is allocated for a file too small to fill
/// it.
Result<RgbImage> decode_png(std::string_view bytes, const std::string& name, PngText* text = nullptr);
Result<RgbImage> read_png(const std::string& path, PngText* text = nullptr);

}  // namespace redline
