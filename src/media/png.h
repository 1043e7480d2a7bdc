// Reads and writes PNG files with libpng.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "media/rgb_image.h"

namespace redline {

/// Encodes 8 bits per channel, with text chunks ({"parameters", "..."}; keys of 1 to 79 Latin-1 characters, values
/// UTF-8; other bytes are read as Latin-1). invalid_argument: an empty image, or rgb of another size.
Result<std::string> encode_png(const RgbImage& image, const ImageText& text = {});
/// Writes a file, under a temporary name first. io: system error.
Status write_png(const std::string& path, const RgbImage& image, const ImageText& text = {});

/// Decodes any PNG to 8-bit RGB like Pillow's convert("RGB"): gray is replicated, palettes are looked up, alpha is
/// dropped, 16-bit samples keep the upper 8. The orientation of an eXIf chunk is applied. `text`, if given, receives
/// the text chunks as UTF-8: tEXt and zTXt are Latin-1. `alpha`, if given, receives the transparency [height, width],
/// empty if the file has none. invalid_argument: corrupt, or larger than kMaxImageSide and kMaxImagePixels; the message
/// includes libpng's reason. Little extra memory is used, and no large buffer is allocated for a file that is too small
/// to fill it.
Result<RgbImage> decode_png(std::string_view bytes, const std::string& name, ImageText* text = nullptr,
                            std::vector<uint8_t>* alpha = nullptr);
Result<RgbImage> read_png(const std::string& path, ImageText* text = nullptr);

}  // namespace redline
