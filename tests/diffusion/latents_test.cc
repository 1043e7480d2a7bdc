#include "diffusion/latents.h"

#include <gmock/gmock.h>

#include <numeric>

namespace redline {
namespace {

TEST(Latents, APatchIsChannelsThenRowsThenColumns) {
  // FluxPipeline._pack_latents of diffusers: view(c, h/2, 2, w/2, 2).permute(h/2, w/2, c, 2, 2).
  const LatentShape shape{.channels = 2, .height = 2, .width = 4, .patch = 2};
  std::vector<float> planes(16), rows(16);
  std::iota(planes.begin(), planes.end(), 0.0f);
  pack_latents(shape, planes.data(), rows.data());
  EXPECT_EQ(rows, (std::vector<float>{0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15}));
}

TEST(Latents, UnpackingGivesThePlanesBack) {
  for (const int64_t patch : {1, 2, 3})
    for (const int64_t frames : {1, 5}) {
      const LatentShape shape{.channels = 3, .height = 6, .width = 12, .patch = patch, .frames = frames};
      std::vector<float> planes(static_cast<size_t>(2 * shape.elements()));
      std::iota(planes.begin(), planes.end(), 0.0f);
      const std::vector<float> rows = packed_images(shape, planes);
      EXPECT_EQ(rows == planes, false);  // three channels: a pixel's channels are no longer a plane apart
      EXPECT_EQ(unpacked_images(shape, rows), planes);
    }
}

// Row t * tokens of a frame and so on: the tokens of a clip are those of its frames, one frame after another.
TEST(Latents, FramesFollowEachOther) {
  const LatentShape clip{.channels = 2, .height = 2, .width = 4, .patch = 2, .frames = 3};
  LatentShape frame = clip;
  frame.frames = 1;
  EXPECT_EQ(clip.tokens(), 3 * frame.tokens());
  EXPECT_EQ(clip.columns(), 8);
  std::vector<float> planes(static_cast<size_t>(clip.elements())), rows(planes.size()), expected;
  std::iota(planes.begin(), planes.end(), 0.0f);
  pack_latents(clip, planes.data(), rows.data());
  for (int64_t t = 0; t < 3; ++t) {
    std::vector<float> one, packed(static_cast<size_t>(frame.elements()));
    for (int64_t c = 0; c < 2; ++c)
      for (int64_t i = 0; i < 8; ++i) one.push_back(planes[static_cast<size_t>((c * 3 + t) * 8 + i)]);
    pack_latents(frame, one.data(), packed.data());
    expected.insert(expected.end(), packed.begin(), packed.end());
  }
  EXPECT_EQ(rows, expected);
}

// A network that predicts variances too gives rows of twice the channels.
TEST(Latents, OutputRowsLeaveOutFurtherChannels) {
  const LatentShape shape{.channels = 1, .height = 2, .width = 2, .patch = 2};
  std::vector<float> rows(4);
  const std::vector<float> last = {0, 9, 1, 9, 2, 9, 3, 9};  // [2, 2, 2 channels]
  take_output_rows(shape, last.data(), 2, true, rows.data());
  EXPECT_EQ(rows, (std::vector<float>{0, 1, 2, 3}));
  const std::vector<float> first = {0, 1, 2, 3, 9, 9, 9, 9};  // [2 channels, 2, 2]
  take_output_rows(shape, first.data(), 2, false, rows.data());
  EXPECT_EQ(rows, (std::vector<float>{0, 1, 2, 3}));
}

// diffusers: unpatchify by reshape(h, w, p, p, c) and einsum("hwpqc->chpwq"), which unpack_latents completes.
TEST(Latents, OutputRowsWithChannelsLastAreReordered) {
  const LatentShape shape{.channels = 3, .height = 4, .width = 2, .patch = 2};
  std::vector<float> from(static_cast<size_t>(shape.elements())), to(from.size());
  std::iota(from.begin(), from.end(), 0.0f);
  take_output_rows(shape, from.data(), 3, true, to.data());
  for (int64_t token = 0; token < 2; ++token)
    for (int64_t c = 0; c < 3; ++c)
      for (int64_t i = 0; i < 4; ++i)
        EXPECT_EQ(to[static_cast<size_t>(token * 12 + c * 4 + i)], static_cast<float>(token * 12 + i * 3 + c));
}

/// Counts up from zero.
class CountingNoise final : public NoiseSource {
 public:
  void draw(std::span<float> out) override { std::iota(out.begin(), out.end(), 0.0f); }
};

TEST(Latents, RowNoiseIsDrawnInTheOrderOfPlanes) {
  const LatentShape shape{.channels = 2, .height = 4, .width = 2, .patch = 2};
  CountingNoise planes;
  std::vector<float> rows(static_cast<size_t>(3 * shape.elements())), expected(rows.size());
  RowNoise(shape, planes).draw(rows);
  std::iota(expected.begin(), expected.end(), 0.0f);
  EXPECT_EQ(rows, packed_images(shape, expected));
}

TEST(Latents, ExtentsFollowTheAxesOfTheGrid) {
  const LatentShape shape{.channels = 2, .height = 6, .width = 5, .frames = 9};
  SymbolValues sizes;
  const Grid image = image_grid(1), video({"frames", "height", "width"}, 2);
  set_extents(Grid(), shape, sizes);
  EXPECT_EQ(video.extent(0).eval(sizes), 0);
  set_extents(image, shape, sizes);
  EXPECT_EQ(image.extent(0, 1).eval(sizes), 3);
  EXPECT_EQ(image.extent(1, 1).eval(sizes), 3);
  set_extents(video, shape, sizes);
  EXPECT_EQ(video.extent(0, 2).eval(sizes), 3);
  EXPECT_EQ(video.extent(2).eval(sizes), 5);
}

TEST(Latents, AreShrunkToTheMeansOfSquares) {
  const LatentShape shape{.channels = 2, .height = 3, .width = 4};
  std::vector<float> planes(24);
  std::iota(planes.begin(), planes.end(), 0.0f);
  LatentShape small;
  const std::vector<float> means = shrink_latents(planes, shape, 2, small);
  EXPECT_EQ(small.height, 2);
  EXPECT_EQ(small.width, 2);
  EXPECT_EQ(means, (std::vector<float>{2.5, 4.5, 8.5, 10.5, 14.5, 16.5, 20.5, 22.5}));
  EXPECT_EQ(shrink_latents(planes, shape, 1, small), planes);
  EXPECT_EQ(shrink_latents(planes, shape, 100, small), (std::vector<float>{5.5, 17.5}));
}

}  // namespace
}  // namespace redline
