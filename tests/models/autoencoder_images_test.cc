// Autoencoders with trained weights: stored latents must give the stored images.
#include "media/png.h"
#include "support/autoencoder_golden.h"
#include "support/image_builders.h"
#include "support/npy.h"

namespace redline {
namespace {

using testing::NetworkMode;
using testing::NpyArray;

/// 20 log10(255 / root of the mean squared difference) of a decoder's image, in [-1, 1], and one of 8 bits.
double psnr(const float* picture, const RgbImage& expected) {
  double squares = 0;
  for (size_t i = 0; i < expected.rgb.size(); ++i) {
    const double value = std::round(std::clamp(double{picture[i]} * 127.5 + 127.5, 0.0, 255.0));
    squares += (value - expected.rgb[i]) * (value - expected.rgb[i]);
  }
  return squares == 0 ? INFINITY : 10 * std::log10(255.0 * 255.0 * static_cast<double>(expected.rgb.size()) / squares);
}

class AutoencoderImages : public ::testing::TestWithParam<NetworkMode> {
 protected:
  // Rounding of some forty products in a row to bfloat16 leaves 35 dB; float32 only what rounding to 8 bits turns over.
  double least() const { return GetParam() == NetworkMode::kF32 ? 50 : 35; }
};

TEST_P(AutoencoderImages, Bundled) {
  const std::string folder = REDLINE_SOURCE_DIR "/assets/redline-shapes";
  auto checkpoint = Checkpoint::open(folder + "/vae");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  auto model = testing::build_autoencoder_kl(*checkpoint);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto runtime = testing::make_runtime(2);
  Executable network = make_network(std::move(model->decode), testing::latent_sizes(1, 20, 20), GetParam(), *runtime);
  for (int i = 0; i < 6; ++i) {
    auto latents = testing::read_npy(fmt::format("{}/reference/case{}_latents.npy", folder, i));
    auto picture = read_png(fmt::format("{}/reference/case{}_picture.png", folder, i));
    ASSERT_TRUE(latents.ok() && picture.ok());
    const int64_t height = picture->height / 8, width = picture->width / 8, C = model->latent_channels;
    ASSERT_LE(std::max(height, width), 20);
    ASSERT_EQ(static_cast<int64_t>(latents->values.size()), height * width * C);
    // Packed: [tokens of 2 x 2 pixels, channels * 2 * 2].
    for (int64_t y = 0; y < height; ++y)
      for (int64_t x = 0; x < width; ++x)
        for (int64_t c = 0; c < C; ++c) {
          const double latent = latents->row(y / 2 * (width / 2) + x / 2)[c * 4 + y % 2 * 2 + x % 2];
          const auto channel = static_cast<size_t>(c);
          network.input("latents")[(y * width + x) * C + c] =
              static_cast<float>(latent / model->scaling[channel] + model->shift[channel]);
        }
    ASSERT_TRUE(network.run(testing::latent_sizes(1, height, width)).ok());
    EXPECT_GE(psnr(network.output("image"), *picture), least()) << "case " << i;
  }
}

TEST_P(AutoencoderImages, Taef2) {
  const std::string folder = REDLINE_SHARED_DIR "/models/taef2";
  auto latents = testing::read_npy(folder + "/test_latent_f32.npy");
  if (!latents.ok()) GTEST_SKIP() << folder << " is not there";
  auto picture = read_png(folder + "/test_roundtrip_256.png");
  ASSERT_TRUE(picture.ok()) << picture.status().message();
  auto checkpoint = open_original_autoencoder_tiny(folder + "/taef2_encoder.pth", folder + "/taef2_decoder.pth");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  auto model = testing::build_autoencoder_tiny(*checkpoint);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto runtime = testing::make_runtime(2);
  const int64_t side = picture->width / 8, pixels = side * side, C = model->latent_channels;
  ASSERT_EQ(static_cast<int64_t>(latents->values.size()), pixels * C);
  const SymbolValues sizes = testing::latent_sizes(1, side, side);
  Executable network = make_network(std::move(model->decode), sizes, GetParam(), *runtime);
  for (int64_t p = 0; p < pixels; ++p)
    for (int64_t c = 0; c < C; ++c)
      network.input("latents")[p * C + c] = static_cast<float>(latents->values[static_cast<size_t>(c * pixels + p)]);
  ASSERT_TRUE(network.run(sizes).ok());
  EXPECT_GE(psnr(network.output("image"), *picture), least());
}

INSTANTIATE_TEST_SUITE_P(Modes, AutoencoderImages, ::testing::Values(NetworkMode::kF32, NetworkMode::kAuto),
                         [](const auto& info) { return testing::network_mode_name(info.param); });

}  // namespace
}  // namespace redline
