// Expected pixels were made with Pillow 13 (Image.resize, LANCZOS) and, for "crop" and "fit", with diffusers 0.39
// (VaeImageProcessor.resize with "crop" and "fill") from the same formula of the source.
#include "media/resize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace redline {
namespace {

using Bytes = std::vector<uint8_t>;

RgbImage resize_source(int64_t width, int64_t height) {
  RgbImage image = {width, height, {}};
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < 3; ++c)
        image.rgb.push_back(static_cast<uint8_t>((37 * x + 59 * y + 83 * c + 11 * x * y) % 256));
  return image;
}

int largest_difference(const Bytes& a, const Bytes& b) {
  if (a.size() != b.size()) return 256;
  int most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

struct ResizeCase {
  int64_t from_width, from_height, to_width, to_height;
  Bytes pillow;
};

TEST(Resize, LanczosEqualsPillow) {
  const ResizeCase cases[] = {
      {7, 5, 4, 3, {31,  138, 170, 118, 171, 114, 173, 131, 102, 152, 84,  102, 159, 106, 72,  164, 98,  137,
                    122, 135, 103, 123, 147, 127, 179, 66,  161, 132, 162, 141, 122, 115, 120, 120, 121, 152}},
      {3, 2, 5, 4, {0,   70, 148, 0,   80,  178, 25,  108, 236, 52,  135, 255, 63,  146, 255, 13,  94, 183, 22,  105,
                    169, 53, 136, 160, 84,  167, 184, 96,  179, 204, 42,  124, 229, 56,  139, 157, 91, 174, 60,  126,
                    209, 76, 140, 223, 116, 65,  148, 255, 81,  164, 148, 119, 202, 0,   158, 241, 0,  173, 255, 48}},
      {9, 1, 2, 1, {83, 145, 140, 126, 97, 126}}};
  for (const ResizeCase& c : cases) {
    const RgbImage result = resize_lanczos(resize_source(c.from_width, c.from_height), c.to_width, c.to_height);
    EXPECT_EQ(result.width, c.to_width);
    EXPECT_EQ(result.height, c.to_height);
    // Weights are rounded to 2^-22 in both; products of up to 255 and their sum round to the same byte, or the next.
    EXPECT_LE(largest_difference(result.rgb, c.pillow), 1) << c.from_width << "x" << c.from_height;
  }
}

TEST(Resize, OfTheSameSizeIsTheImage) {
  const RgbImage image = resize_source(7, 5);
  EXPECT_EQ(resize_lanczos(image, 7, 5).rgb, image.rgb);
  EXPECT_EQ(resize_image(image, 7, 5, ResizeMode::kCrop).rgb, image.rgb);
}

TEST(Resize, CropCoversTheNewSizeAsDiffusersDoes) {
  const Bytes expected = {16,  99,  182, 63, 174, 188, 147, 185, 61,  167, 112, 107, 86,  163, 109, 177,
                          144, 47,  170, 72, 148, 141, 156, 128, 189, 58,  58,  179, 59,  196, 89,  170,
                          114, 119, 122, 70, 191, 55,  179, 98,  200, 143, 188, 104, 113, 84,  130, 154};
  EXPECT_LE(largest_difference(resize_image(resize_source(7, 5), 4, 4, ResizeMode::kCrop).rgb, expected), 1);
}

TEST(Resize, FitLiesWithinTheNewSizeAndRepeatsItsBorder) {
  // 7x5 in 4x4 is 4x2 with one row above and one below.
  const Bytes first = {75, 129, 129, 136, 140, 123, 154, 136, 100, 144, 108, 109},
              second = {180, 79, 123, 147, 133, 141, 118, 123, 114, 121, 135, 143};
  Bytes expected;
  for (const Bytes* row : {&first, &first, &second, &second}) expected.insert(expected.end(), row->begin(), row->end());
  EXPECT_LE(largest_difference(resize_image(resize_source(7, 5), 4, 4, ResizeMode::kFit).rgb, expected), 1);
}

TEST(Resize, ModesByName) {
  EXPECT_EQ(*resize_mode_of(""), ResizeMode::kStretch);
  for (const char* name : {"stretch", "crop", "fit"}) EXPECT_EQ(resize_mode_name(*resize_mode_of(name)), name);
  EXPECT_THAT(resize_mode_of("zoom").status().message(),
              ::testing::HasSubstr("\"zoom\"; it must be stretch, crop or fit"));
}

}  // namespace
}  // namespace redline
