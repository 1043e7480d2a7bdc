// Reads and writes EXIF data of PNG, JPEG and WebP files: the orientation, and text in the fields that Stable
// Diffusion's programs use.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "media/rgb_image.h"

namespace redline {

/// Returns a TIFF structure with "parameters" as UserComment (UTF-16, like A1111's web UI) and "redline" as
/// ImageDescription; other keys are omitted. "" if there is neither.
std::string make_exif(const ImageText& text);
/// Sets "parameters" (UserComment), "redline" (ImageDescription, if it is a JSON object) and "prompt" (Model, which
/// ComfyUI uses in WebP files), all in UTF-8. Any bytes are accepted; damaged fields are ignored.
void read_exif(std::string_view tiff, ImageText& text);
/// Returns the orientation, 1 to 8, which says which sides of the stored image are top and left; 1 if it is not given.
int exif_orientation(std::string_view tiff);
/// Returns true if the orientation exchanges width and height.
constexpr bool swaps_sides(int orientation) { return orientation >= 5 && orientation <= 8; }
/// Applies the orientation to a transparency [height, width]. Width and height are those before the call.
void apply_orientation(std::vector<uint8_t>& alpha, int64_t width, int64_t height, int orientation);
/// Returns `image` with the orientation applied.
RgbImage apply_orientation(RgbImage image, int orientation);

}  // namespace redline
