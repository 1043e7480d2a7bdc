// Resizing of images.
#pragma once

#include <string_view>

#include "base/error.h"
#include "redline/rgb_image.h"

namespace redline {

/// How an image of one shape becomes one of another.
enum class ResizeMode : uint8_t {
  kStretch,  ///< each side is scaled on its own
  kCrop,     ///< scaled until it covers the new size; what hangs over on two sides is cut off
  kFit,      ///< scaled until it lies within the new size; its border pixels fill the rest
};
/// "stretch", "crop" or "fit"; "" is stretch. invalid_argument: another name.
Result<ResizeMode> resize_mode_of(std::string_view name);
std::string_view resize_mode_name(ResizeMode mode);

/// Scales each side with Lanczos' filter of three lobes, which widens as the image shrinks; equal to Pillow's
/// Image.resize(size, LANCZOS). An image of the wanted size is returned as it is. Sides are at least 1.
RgbImage resize_lanczos(const RgbImage& image, int64_t width, int64_t height);
/// The same by mode. The cut and the placement are those of diffusers' VaeImageProcessor ("default", "crop", "fill").
RgbImage resize_image(const RgbImage& image, int64_t width, int64_t height, ResizeMode mode);

}  // namespace redline
