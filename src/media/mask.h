// Masks of inpainting: white is regenerated, black is kept.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "redline/rgb_image.h"

namespace redline {

/// Least luminance of a white pixel.
inline constexpr uint8_t kWhiteMask = 128;

/// An image with its transparency.
struct AlphaImage {
  RgbImage image;
  std::vector<uint8_t> alpha;  ///< [height, width]; empty: opaque throughout
};

/// Splits pixels of four channels, [height, width, 4] in `image.rgb`: removes the fourth and returns it.
std::vector<uint8_t> take_alpha(RgbImage& image);

/// A mask whose three channels are the luminance 0.299 R + 0.587 G + 0.114 B of `mask`, rounded as by Pillow's
/// convert("L").
RgbImage gray_mask(const RgbImage& mask);
/// The same of an image over black: what is transparent is kept.
RgbImage gray_mask(const AlphaImage& mask);
/// True: some pixel of a gray mask is white.
bool has_white(const RgbImage& gray);
/// OpenAI's form of a mask: white where alpha is below 128, else black. None: the image is opaque throughout.
std::optional<RgbImage> transparent_region(const AlphaImage& given);

}  // namespace redline
