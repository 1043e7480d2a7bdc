// LPIPS against PyTorch over a narrow AlexNet (tests/golden/image/make_lpips.py).
#include "lab/images/lpips.h"

#include <gmock/gmock.h>

#include <fstream>

#include "support/golden.h"
#include "support/npz.h"
#include "support/temporary_folder.h"

namespace redline::lab {
namespace {

using ::testing::HasSubstr;

std::string folder() { return fmt::format("{}/image/lpips", testing::golden_root()); }

RgbImage lpips_picture_of(const testing::NpyArray& array) {
  RgbImage p;
  p.height = array.shape[0];
  p.width = array.shape[1];
  for (const double v : array.values) p.rgb.push_back(static_cast<uint8_t>(v));
  return p;
}

TEST(Lpips, EqualsPyTorch) {
  const auto lpips = Lpips::open(folder() + "/weights.safetensors");
  ASSERT_TRUE(lpips.ok()) << lpips.status().to_string();
  const auto arrays = testing::read_npz(folder() + "/io.npz");
  ASSERT_TRUE(arrays.ok()) << arrays.status().to_string();
  for (const std::string name : {"wide", "least", "even"}) {
    const RgbImage a = lpips_picture_of(arrays->at(name + ".a")), b = lpips_picture_of(arrays->at(name + ".b"));
    const double want = arrays->at(name + ".distance").values[0];
    // Float32 sums of at most 363 products a place against float64.
    EXPECT_NEAR(*lpips->distance(a, b), want, 2e-5 * want) << name;
    EXPECT_DOUBLE_EQ(*lpips->distance(b, a), *lpips->distance(a, b));
    EXPECT_EQ(*lpips->distance(a, a), 0);
  }
}

TEST(Lpips, SaysWhatIsWrong) {
  const auto lpips = Lpips::open(folder() + "/weights.safetensors");
  ASSERT_TRUE(lpips.ok());
  RgbImage small, other;
  small.width = small.height = 30;
  small.rgb.resize(2700);
  other.width = 40;
  other.height = 30;
  other.rgb.resize(3600);
  EXPECT_THAT(lpips->distance(small, small).status().message(), HasSubstr("at least 31 pixels"));
  EXPECT_THAT(lpips->distance(small, other).status().message(), HasSubstr("30x30 and 40x30"));
  EXPECT_THAT(Lpips::open(folder() + "/none").status().message(), HasSubstr("none"));
  // A checkpoint without these tensors.
  const Status status = Lpips::open(fmt::format("{}/image/clip_l/model.safetensors", testing::golden_root())).status();
  EXPECT_EQ(status.code(), Code::not_found);
  EXPECT_THAT(status.message(), HasSubstr("features.0.weight or net.slice1.0.weight"));
}

}  // namespace
}  // namespace redline::lab
