// Inpainting masks: white is regenerated, black is kept.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "redline/rgb_image.h"

namespace redline {

/// Minimum luminance of a white pixel.
inline constexpr uint8_t kWhiteMask = 128;

/// An image with its transparency.
struct AlphaImage {
  RgbImage image;
  std::vector<uint8_t> alpha;  ///< [height, width]; empty: the image is opaque
};

/// Splits pixels of four channels, [height, width, 4] in `image.rgb`: removes the fourth channel and returns it.
std::vector<uint8_t> take_alpha(RgbImage& image);

/// Returns a mask whose three channels are the luminance 0.299 R + 0.587 G + 0.114 B of `mask`, rounded as by Pillow's
/// convert("L").
RgbImage gray_mask(const RgbImage& mask);
/// Returns the gray mask of an image over black, so that transparent pixels are kept.
RgbImage gray_mask(const AlphaImage& mask);
/// Returns true if a pixel of a gray mask is white.
bool has_white(const RgbImage& gray);
/// Returns the mask for OpenAI's form of masks: white where alpha is below 128, else black. nullopt: the image is
/// opaque.
std::optional<RgbImage> transparent_region(const AlphaImage& given);

}  // namespace redline
