// GIF files: https://www.w3.org/Graphics/GIF/spec-gif89a.txt
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "media/rgb_image.h"

namespace redline {

/// Decodes the first image of a file and places it on the canvas, whose size is that of the whole animation. The parts
/// that the image does not cover have the transparent colour, or else the first of the palette, like Pillow. `alpha`,
/// if given, receives the transparency [height, width], empty if the image has none.
/// invalid_argument: corrupt, truncated, or larger than kMaxImageSide and kMaxImagePixels.
Result<RgbImage> decode_gif(std::string_view bytes, const std::string& name, std::vector<uint8_t>* alpha = nullptr);

}  // namespace redline
