#include "lab/images/image_metrics.h"

#include <gtest/gtest.h>

#include "support/npz.h"

namespace redline::lab {
namespace {

RgbImage image_metrics_picture_of(const testing::NpyArray& array) {
  RgbImage picture{array.dim(1), array.dim(0), {}};
  for (double value : array.values) picture.rgb.push_back(static_cast<uint8_t>(value));
  return picture;
}

// Both sides sum in float64: 1e-12 is a thousand units in its last place.
TEST(ImageMetrics, AsNumpyAndScikitImage) {
  const auto arrays = testing::read_npz(REDLINE_SOURCE_DIR "/tests/golden/image/image_metrics/io.npz");
  ASSERT_TRUE(arrays.ok()) << arrays.status().to_string();
  for (const std::string name : {"noisy", "shifted", "one_off", "far", "same"}) {
    SCOPED_TRACE(name);
    const RgbImage a = image_metrics_picture_of(arrays->at(name + ".a")),
                   b = image_metrics_picture_of(arrays->at(name + ".b"));
    const auto decibels = psnr(a, b), similarity = ssim(a, b);
    ASSERT_TRUE(decibels.ok() && similarity.ok());
    EXPECT_NEAR(*decibels, arrays->at(name + ".psnr").values[0], 1e-12 * 100);
    EXPECT_NEAR(*similarity, arrays->at(name + ".ssim").values[0], 1e-12);
    EXPECT_EQ(*psnr(b, a), *decibels);
  }
}

TEST(ImageMetrics, RefusesWhatCannotBeCompared) {
  const RgbImage small{2, 2, std::vector<uint8_t>(12)}, wide{3, 2, std::vector<uint8_t>(18)};
  EXPECT_EQ(psnr(small, wide).status().code(), Code::invalid_argument);
  EXPECT_EQ(psnr({}, {}).status().code(), Code::invalid_argument);
  EXPECT_EQ(psnr({2, 2, {1}}, small).status().code(), Code::invalid_argument);
  EXPECT_EQ(ssim(small, small).status().code(), Code::invalid_argument);
  EXPECT_EQ(*psnr(small, small), 100);
}

}  // namespace
}  // namespace redline::lab
