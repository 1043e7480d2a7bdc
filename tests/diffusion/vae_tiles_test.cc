// Images of the bundled model decoded in tiles and whole.
#include "diffusion/vae_tiles.h"

#include <gmock/gmock.h>

#include <cmath>

#include "redline/image.h"

namespace redline {
namespace {

using ::testing::ElementsAre;

TEST(VaeTiles, CoverEvenly) {
  EXPECT_THAT(tile_starts(10, 10, 2), ElementsAre(0));
  EXPECT_THAT(tile_starts(3, 10, 2), ElementsAre(0));
  EXPECT_THAT(tile_starts(11, 10, 2), ElementsAre(0, 1));
  EXPECT_THAT(tile_starts(26, 10, 2), ElementsAre(0, 8, 16));
  for (int64_t length = 1; length < 60; ++length)
    for (int64_t tile = 1; tile < 20; ++tile) {
      const auto starts = tile_starts(length, tile, tile / 4);
      EXPECT_EQ(starts.front(), 0);
      EXPECT_EQ(starts.back(), std::max<int64_t>(length - tile, 0));
      for (size_t i = 1; i < starts.size(); ++i) EXPECT_LE(starts[i], starts[i - 1] + tile - tile / 4);
    }
}

RgbImage draw_vae_tiles(int64_t vae_tile) {
  ImageOptions options;
  options.threads = 2;
  options.max_side = 256;
  options.dtype = Precision::kF32;
  options.vae_tile = vae_tile;
  auto engine = ImageEngine::open(REDLINE_SOURCE_DIR "/assets/redline-shapes", options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  ImageRequest request = (*engine)->defaults();
  request.prompts = {"a large red circle on a blue background"};
  request.width = 160;
  request.height = 96;
  request.num_inference_steps = 6;
  request.seed = 3;
  auto result = (*engine)->generate(request);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result->images.at(0);
}

TEST(VaeTiles, NoSeams) {
  const RgbImage whole = draw_vae_tiles(-1), tiled = draw_vae_tiles(64);
  ASSERT_EQ(whole.rgb.size(), tiled.rgb.size());
  EXPECT_EQ(draw_vae_tiles(160).rgb, whole.rgb) << "a tile that covers the image";
  EXPECT_EQ(draw_vae_tiles(0).rgb, whole.rgb) << "a small image needs no tiles";
  const auto error = [&](int64_t x, int64_t y, int64_t k) {
    const auto at = static_cast<size_t>((y * whole.width + x) * 3 + k);
    return static_cast<double>(tiled.rgb[at]) - whole.rgb[at];
  };
  double squares = 0;
  std::vector<double> jumps(static_cast<size_t>(whole.width - 1));  // of the difference, between neighbouring columns
  for (int64_t y = 0; y < whole.height; ++y)
    for (int64_t k = 0; k < 3; ++k)
      for (int64_t x = 0; x < whole.width; ++x) {
        squares += std::pow(error(x, y, k), 2);
        if (x > 0) jumps[static_cast<size_t>(x - 1)] += std::abs(error(x, y, k) - error(x - 1, y, k));
      }
  const double psnr = 10 * std::log10(255.0 * 255 * static_cast<double>(whole.rgb.size()) / std::max(squares, 1e-9));
  EXPECT_GE(psnr, 30);
  // A seam is a jump of the difference in one column, where a tile begins or ends (8 pixels for one of the latent): no
  // larger there than among the columns around it, which contours of the image move alike.
  for (const int64_t start : tile_starts(20, 8, 2))
    for (const int64_t x : {start * 8, (start + 8) * 8}) {
      if (x <= 0 || x >= whole.width) continue;
      double around = 0;
      for (int64_t k = x - 5; k < x + 4; ++k)
        if (k != x - 1) around = std::max(around, jumps[static_cast<size_t>(k)]);
      EXPECT_LE(jumps[static_cast<size_t>(x - 1)], 1.25 * around) << "at column " << x;
    }
}

}  // namespace
}  // namespace redline
