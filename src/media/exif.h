// EXIF data of PNG, JPEG and WebP files: the orientation, and text in the fields that Stable Diffusion's programs use.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "media/rgb_image.h"

namespace redline {

/// A TIFF structure with "parameters" as UserComment (UTF-16, as A1111's web UI writes it) and "redline" as
/// ImageDescription; other keys are left out. "" when there is neither.
std::string make_exif(const ImageText& text);
/// Sets "parameters" (UserComment), "redline" (ImageDescription, if it is a JSON object) and "prompt" (Model, where
/// ComfyUI has it in WebP files), all in UTF-8. Any bytes are accepted; what is damaged is left out.
void read_exif(std::string_view tiff, ImageText& text);
/// The orientation, 1 to 8: which side of the stored image is top and which is left. 1 if not given.
int exif_orientation(std::string_view tiff);
/// True: the orientation is one of those that exchange width and height.
constexpr bool swaps_sides(int orientation) { return orientation >= 5 && orientation <= 8; }
/// Transparency [height, width] with the orientation applied. Width and height are those before.
void apply_orientation(std::vector<uint8_t>& alpha, int64_t width, int64_t height, int orientation);
/// `image` with the orientation applied.
RgbImage apply_orientation(RgbImage image, int orientation);

}  // namespace redline
