#include "media/mask.h"

#include <gtest/gtest.h>

namespace redline {
namespace {

/// The first channel of each pixel, after a check that the three are equal.
std::vector<int> mask_levels(const RgbImage& image) {
  std::vector<int> levels;
  for (size_t i = 0; i < image.rgb.size(); i += 3) {
    EXPECT_EQ(image.rgb[i], image.rgb[i + 1]);
    EXPECT_EQ(image.rgb[i], image.rgb[i + 2]);
    levels.push_back(image.rgb[i]);
  }
  return levels;
}

TEST(Mask, LuminanceOfColoursAsPillowRounds) {
  // 0.299 R + 0.587 G + 0.114 B: green 149.7, red 76.2, blue 29.1; Pillow's convert("L") gives these bytes.
  const RgbImage colours = {6, 1, {0, 255, 0, 255, 0, 0, 0, 0, 255, 150, 150, 150, 0, 150, 0, 200, 100, 50}};
  EXPECT_EQ(mask_levels(gray_mask(colours)), (std::vector<int>{150, 76, 29, 150, 88, 124}));
  EXPECT_TRUE(has_white(gray_mask(RgbImage{1, 1, {0, 255, 0}})));
  EXPECT_FALSE(has_white(gray_mask(RgbImage{1, 1, {255, 0, 0}})));
  // From 128 on a gray is white.
  EXPECT_TRUE(has_white({1, 1, {128, 128, 128}}));
  EXPECT_FALSE(has_white({1, 1, {127, 127, 127}}));
}

TEST(Mask, WhatIsTransparentIsBlackUnderIt) {
  const AlphaImage given = {{4, 1, {255, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0}}, {255, 0, 128, 255}};
  EXPECT_EQ(mask_levels(gray_mask(given)), (std::vector<int>{255, 0, 128, 0}));
}

TEST(Mask, OpenAiMarksByTransparency) {
  const RgbImage white = {4, 1, std::vector<uint8_t>(12, 255)}, black = {4, 1, std::vector<uint8_t>(12, 0)};
  for (const RgbImage& image : {white, black})  // the colour under it does not count
    EXPECT_EQ(mask_levels(*transparent_region({image, {255, 128, 127, 0}})), (std::vector<int>{0, 0, 255, 255}));
  EXPECT_FALSE(transparent_region({white, {}}).has_value());
  EXPECT_FALSE(transparent_region({white, {255, 255, 255, 255}}).has_value());
}

TEST(Mask, FourChannelsAreSplit) {
  RgbImage rgba = {2, 1, {1, 2, 3, 4, 5, 6, 7, 8}};
  EXPECT_EQ(take_alpha(rgba), (std::vector<uint8_t>{4, 8}));
  EXPECT_EQ(rgba.rgb, (std::vector<uint8_t>{1, 2, 3, 5, 6, 7}));
}

}  // namespace
}  // namespace redline
