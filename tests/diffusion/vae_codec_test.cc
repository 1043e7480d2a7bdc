#include "diffusion/vae_codec.h"

#include <gmock/gmock.h>

#include <random>

#include "support/image_builders.h"
#include "support/image_golden.h"
#include "support/image_sizes.h"

namespace redline {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSide = 4;

VaeCodec open_codec(const Checkpoint& checkpoint, RuntimeResources& runtime) {
  auto model = testing::build_autoencoder_kl(checkpoint);
  EXPECT_TRUE(model.ok()) << model.status().message();
  if (!model.ok()) return {};
  ExecutableOptions options = testing::network_options(testing::NetworkMode::kF32);
  options.bounds[Symbol::kBatch] = 1;
  testing::set_image_size(options.bounds, kSide, kSide);
  const int64_t side = kSide * model->scale;
  auto codec = VaeCodec::make(std::move(*model), options, side, 0, runtime);
  EXPECT_TRUE(codec.ok()) << codec.status().message();
  return codec.ok() ? std::move(*codec) : VaeCodec();
}

// diffusers: latents * latents_std / scaling_factor + latents_mean before decoding, and the inverse after encoding.
TEST(VaeCodec, ScalesEachChannelByItsMeanAndDeviation) {
  testing::ImageGolden golden = testing::load_image_golden("kl_sdxl");
  const auto runtime = testing::make_runtime(1);
  VaeCodec plain = open_codec(golden.checkpoint, *runtime);
  const int64_t channels = plain.latent_channels();
  const LatentShape shape = {channels, kSide, kSide};
  const double scaling = golden.checkpoint.config.value("scaling_factor", 0.18215);
  std::vector<double> means, deviations;
  for (int64_t c = 0; c < channels; ++c) {
    means.push_back(0.25 * static_cast<double>(c) - 0.5);
    deviations.push_back(0.5 + 0.75 * static_cast<double>(c));
  }
  golden.checkpoint.config["latents_mean"] = means;
  golden.checkpoint.config["latents_std"] = deviations;
  VaeCodec normalized = open_codec(golden.checkpoint, *runtime);

  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> latents(static_cast<size_t>(shape.elements())), z(latents.size());
  for (size_t i = 0; i < latents.size(); ++i) {
    latents[i] = normal(random);
    const size_t c = i / static_cast<size_t>(shape.pixels());
    z[i] = static_cast<float>(latents[i] * deviations[c] / scaling + means[c]);
  }
  const auto image = normalized.decode(latents, shape);
  ASSERT_TRUE(image.ok()) << image.status().message();
  const auto rows = plain.decode_rows(z, shape);
  ASSERT_TRUE(rows.ok());
  ASSERT_EQ(image->rgb.size(), rows->size());
  // A latent rounds twice, once here and once in the codec: pixels may differ by the rounding to whole numbers.
  for (size_t i = 0; i < image->rgb.size(); ++i)
    ASSERT_NEAR(image->rgb[i], std::clamp((*rows)[i] * 0.5f + 0.5f, 0.0f, 1.0f) * 255.0f, 0.51) << i;

  const std::vector<float> pixels = pixel_values(&*image, nullptr, image->width, image->height);
  TorchGenerators first(7, 1), second(7, 1);
  const auto own = normalized.encode(pixels, shape, first), other = plain.encode(pixels, shape, second);
  ASSERT_TRUE(own.ok() && other.ok());
  for (size_t i = 0; i < own->size(); ++i) {
    const size_t c = i / static_cast<size_t>(shape.pixels());
    const double raw = (*other)[i] / scaling;
    const double expected = (raw - means[c]) * scaling / deviations[c];
    // Both latents and the difference to the mean are rounded to float32.
    ASSERT_NEAR((*own)[i], expected, 1e-6 * (1 + std::abs(raw) + std::abs(means[c])) / deviations[c]) << i;
  }
}

TEST(VaeCodec, RefusesMeansThatDoNotFitTheChannels) {
  const auto refusal = [](const char* key, const nlohmann::json& value, const char* other = nullptr) {
    testing::ImageGolden golden = testing::load_image_golden("kl_sdxl");
    nlohmann::json& config = golden.checkpoint.config;
    if (other) config[other] = std::vector<double>(config["latent_channels"].get<size_t>(), 1.0);
    config[key] = value;
    const auto model = testing::build_autoencoder_kl(golden.checkpoint);
    return model.ok() ? std::string() : model.status().message();
  };
  EXPECT_THAT(refusal("latents_mean", {1, 2}), HasSubstr("latents_mean must be an array"));
  EXPECT_THAT(refusal("latents_mean", "0"), HasSubstr("latents_mean must be an array"));
  EXPECT_THAT(refusal("latents_std", {1, 1, "x", 1}), HasSubstr("latents_std must be an array"));
  EXPECT_THAT(refusal("latents_mean", nullptr, "latents_std"), HasSubstr("belong together"));
  EXPECT_THAT(refusal("latents_std", {1, 1, 0, 1}, "latents_mean"), HasSubstr("must be above 0"));
  EXPECT_THAT(refusal("shift_factor", 0.5, "latents_mean"), HasSubstr("belong together"));
}

}  // namespace
}  // namespace redline
