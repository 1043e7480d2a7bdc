// Resizes images.
#pragma once

#include <string_view>

#include "base/error.h"
#include "redline/rgb_image.h"

namespace redline {

/// Ways to resize an image to another aspect ratio.
enum class ResizeMode : uint8_t {
  kStretch,  ///< the sides are scaled independently
  kCrop,     ///< the image is scaled until it covers the new size; the excess on two sides is cut off
  kFit,      ///< the image is scaled until it lies within the new size; its border pixels fill the rest
};
/// Parses "stretch", "crop" or "fit"; "" is stretch. invalid_argument: another name.
Result<ResizeMode> resize_mode_of(std::string_view name);
std::string_view resize_mode_name(ResizeMode mode);

/// Scales the sides independently with Lanczos' filter of three lobes, which widens as the image shrinks; equal to
/// Pillow's Image.resize(size, LANCZOS). An image of the requested size is returned unchanged. Sides are at least 1.
RgbImage resize_lanczos(const RgbImage& image, int64_t width, int64_t height);
/// Resizes an image by a mode, with the filter of resize_lanczos(). Cropping and placement are those of diffusers'
/// VaeImageProcessor ("default", "crop", "fill").
RgbImage resize_image(const RgbImage& image, int64_t width, int64_t height, ResizeMode mode);

}  // namespace redline
