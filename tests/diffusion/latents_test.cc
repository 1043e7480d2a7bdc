#include "diffusion/latents.h"

#include <numeric>

namespace redline {
namespace {

TEST(Latents, APatchIsChannelsThenRowsThenColumns) {
  // FluxPipeline._pack_latents of diffusers: view(c, h/2, 2, w/2, 2).permute(h/2, w/2, c, 2, 2).
  const LatentLayout layout{.channels = 2, .height = 2, .width = 4, .patch = 2};
  std::vector<float> planes(16), rows(16);
  std::iota(planes.begin(), planes.end(), 0.0f);
  pack_latents(layout, planes.data(), rows.data());
  EXPECT_EQ(rows, (std::vector<float>{0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15}));
}

TEST(Latents, UnpackingGivesThePlanesBack) {
  for (const int64_t patch : {1, 2, 3})
    for (const bool channels_last : {false, true}) {
      const LatentLayout layout{
          .channels = 3, .height = 6, .width = 12, .patch = patch, .channels_last = channels_last};
      const auto n = static_cast<size_t>(layout.elements());
      std::vector<float> planes(n), rows(n), back(n);
      std::iota(planes.begin(), planes.end(), 0.0f);
      pack_latents(layout, planes.data(), rows.data());
      unpack_latents(layout, rows.data(), layout.channels, back.data());
      EXPECT_EQ(back, planes);
    }
}

TEST(Latents, ChannelsThatARowHasBesideAreLeftOut) {
  // A network that predicts variances too gives rows of twice the channels.
  const LatentLayout layout{.channels = 1, .height = 2, .width = 2, .patch = 2, .channels_last = true};
  const std::vector<float> rows = {0, 9, 1, 9, 2, 9, 3, 9};  // [2, 2, 2 channels]
  std::vector<float> planes(4);
  unpack_latents(layout, rows.data(), 2, planes.data());
  EXPECT_EQ(planes, (std::vector<float>{0, 1, 2, 3}));
}

TEST(Latents, AreShrunkToTheMeansOfSquares) {
  const LatentLayout layout{.channels = 2, .height = 3, .width = 4};
  std::vector<float> planes(24);
  std::iota(planes.begin(), planes.end(), 0.0f);
  LatentLayout small;
  const std::vector<float> means = shrink_latents(planes, layout, 2, small);
  EXPECT_EQ(small.height, 2);
  EXPECT_EQ(small.width, 2);
  EXPECT_EQ(means, (std::vector<float>{2.5, 4.5, 8.5, 10.5, 14.5, 16.5, 20.5, 22.5}));
  EXPECT_EQ(shrink_latents(planes, layout, 1, small), planes);
  EXPECT_EQ(shrink_latents(planes, layout, 100, small), (std::vector<float>{5.5, 17.5}));
}

}  // namespace
}  // namespace redline
