#include "media/mask.h"

#include <algorithm>

namespace redline {
namespace {

constexpr uint8_t kOpaque = 255, kHalf = 128;

/// Returns a gray image of the values `at(pixel)`.
template <class F>
RgbImage gray_image(int64_t width, int64_t height, F at) {
  RgbImage gray = {width, height, {}};
  gray.rgb.reserve(static_cast<size_t>(width * height * 3));
  for (size_t pixel = 0; pixel < static_cast<size_t>(width * height); ++pixel)
    gray.rgb.insert(gray.rgb.end(), 3, at(pixel));
  return gray;
}

/// Returns the luminance of a pixel, with Pillow's weights in units of 2^-16.
uint8_t luminance(const uint8_t* rgb) {
  return static_cast<uint8_t>((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
}

}  // namespace

std::vector<uint8_t> take_alpha(RgbImage& image) {
  const auto pixels = static_cast<size_t>(image.width * image.height);
  std::vector<uint8_t> alpha(pixels);
  for (size_t i = 0; i < pixels; ++i) {
    alpha[i] = image.rgb[4 * i + 3];
    for (size_t c = 0; c < 3; ++c) image.rgb[3 * i + c] = image.rgb[4 * i + c];
  }
  image.rgb.resize(3 * pixels);
  return alpha;
}

RgbImage gray_mask(const RgbImage& mask) {
  return gray_image(mask.width, mask.height, [&](size_t pixel) { return luminance(mask.rgb.data() + pixel * 3); });
}

RgbImage gray_mask(const AlphaImage& mask) {
  if (mask.alpha.empty()) return gray_mask(mask.image);
  return gray_image(mask.image.width, mask.image.height, [&](size_t pixel) {
    const int level = luminance(mask.image.rgb.data() + pixel * 3);
    return static_cast<uint8_t>((level * mask.alpha[pixel] + kOpaque / 2) / kOpaque);
  });
}

bool has_white(const RgbImage& gray) {
  return std::any_of(gray.rgb.begin(), gray.rgb.end(), [](uint8_t level) { return level >= kWhiteMask; });
}

std::optional<RgbImage> transparent_region(const AlphaImage& given) {
  const auto is_transparent = [](uint8_t alpha) { return alpha < kOpaque; };
  if (std::none_of(given.alpha.begin(), given.alpha.end(), is_transparent)) return std::nullopt;
  return gray_image(given.image.width, given.image.height,
                    [&](size_t pixel) { return given.alpha[pixel] < kHalf ? uint8_t{255} : uint8_t{0}; });
}

}  // namespace redline
