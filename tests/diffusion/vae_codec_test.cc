#include "diffusion/vae_codec.h"

#include <gmock/gmock.h>

#include <array>
#include <random>

#include "graph/ops/convolution.h"
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
  const auto frames = normalized.decode(latents, shape);
  ASSERT_TRUE(frames.ok()) << frames.status().message();
  ASSERT_EQ(frames->size(), 1u);
  const RgbImage& image = frames->front();
  const auto rows = plain.decode_rows(z, shape);
  ASSERT_TRUE(rows.ok());
  ASSERT_EQ(image.rgb.size(), rows->size());
  // A latent rounds twice, once here and once in the codec: pixels may differ by the rounding to whole numbers.
  for (size_t i = 0; i < image.rgb.size(); ++i)
    ASSERT_NEAR(image.rgb[i], std::clamp((*rows)[i] * 0.5f + 0.5f, 0.0f, 1.0f) * 255.0f, 0.51) << i;

  const std::vector<float> pixels = pixel_values(&image, nullptr, image.width, image.height);
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

/// An autoencoder of video with 2 channels: 2x larger, and 2 n - 1 frames of n. Its decoder is one convolution of 3x3
/// pixels after an enlargement by nearest neighbour, its encoder one of 2x2 pixels of every second frame.
struct ClipAutoencoder {
  static constexpr int64_t kChannels = 2;
  std::vector<float> decoding, encoding;  ///< [3, 2, 1, 3, 3], [4, 3, 1, 2, 2]

  ClipAutoencoder() {
    std::mt19937 random(11);
    std::normal_distribution<float> normal(0, 0.3f);
    for (int i = 0; i < 3 * kChannels * 9; ++i) decoding.push_back(normal(random));
    for (int i = 0; i < 2 * kChannels * 3 * 4; ++i) encoding.push_back(normal(random));
  }

  AutoencoderModel model() const {
    AutoencoderModel m;
    m.grid = Grid({"frames", "height", "width"});
    m.latent_channels = kChannels;
    m.scale = m.temporal_scale = 2;
    m.scale_all(0.5, 0.25);
    const Dim f = m.grid.extent(0), h = m.grid.extent(1), w = m.grid.extent(2), batch = Dim(Symbol::kBatch);
    const std::vector<Dim> large = {f * Dim(2) + Dim(-1), h * Dim(2), w * Dim(2)};
    const auto weight = [](const char* name, const std::vector<float>& values, std::vector<int64_t> shape) {
      WeightSource source;
      source.view = {DType::kF32, std::move(shape), values.data()};
      return std::pair(std::string(name), source);
    };
    {
      GraphBuilder g("decode");
      const auto [name, source] = weight("decoder", decoding, {3, kChannels, 1, 3, 3});
      const ConvAxis square{.kernel = 3, .pad_before = 1, .pad_after = 1};
      const Value z = g.input("latents", DType::kF32, {batch * f * h * w, kChannels});
      const FeatureGrid y = convolution(g, {z, {f, h, w}}, batch, g.weight(name, source),
                                        {.axes = {{}, square, square}, .upsample = true}, {}, large);
      g.output("image", y.value);
      auto graph = g.finish();
      EXPECT_TRUE(graph.ok()) << graph.status().message();
      m.decode = std::move(*graph);
    }
    GraphBuilder g("encode");
    const auto [name, source] = weight("encoder", encoding, {2 * kChannels, 3, 1, 2, 2});
    const Value x = g.input("image", DType::kF32, {batch * large[0] * large[1] * large[2], 3});
    const ConvAxis every_second{.stride = 2}, pair{.kernel = 2, .stride = 2};
    const FeatureGrid y =
        convolution(g, {x, large}, batch, g.weight(name, source), {.axes = {every_second, pair, pair}}, {}, {f, h, w});
    g.output("moments", y.value);
    auto graph = g.finish();
    EXPECT_TRUE(graph.ok()) << graph.status().message();
    m.encode = std::move(*graph);
    return m;
  }

  /// Returns the value of a pixel of frame t.
  double pixel(std::span<const float> z, const LatentShape& s, int64_t t, int64_t y, int64_t x, int64_t k) const {
    const int64_t frame = t * s.frames / (2 * s.frames - 1);
    double sum = 0;
    for (int64_t c = 0; c < kChannels; ++c)
      for (int64_t i = -1; i <= 1; ++i)
        for (int64_t j = -1; j <= 1; ++j) {
          if (y + i < 0 || y + i >= 2 * s.height || x + j < 0 || x + j >= 2 * s.width) continue;
          const int64_t at = ((c * s.frames + frame) * s.height + (y + i) / 2) * s.width + (x + j) / 2;
          sum += double{z[static_cast<size_t>(at)]} *
                 double{decoding[static_cast<size_t>(((k * kChannels + c) * 3 + i + 1) * 3 + j + 1)]};
        }
    return sum;
  }
};

TEST(VaeCodec, AClipHasTheFramesOfItsLatents) {
  const ClipAutoencoder autoencoder;
  const auto runtime = testing::make_runtime(2);
  for (const int64_t tile : {-1, 8}) {  // the whole at once, and tiles of 4 pixels of the latents
    AutoencoderModel model = autoencoder.model();
    ExecutableOptions options = testing::network_options(testing::NetworkMode::kF32);
    options.bounds[Symbol::kBatch] = 1;
    const LatentShape largest{.channels = 2, .height = 8, .width = 8, .frames = 5};
    set_extents(model.grid, largest, options.bounds);
    auto codec = VaeCodec::make(std::move(model), options, 16, tile, *runtime);
    ASSERT_TRUE(codec.ok()) << codec.status().message();
    for (const auto& [frames, height, width] : {std::array<int64_t, 3>{1, 3, 5}, {2, 8, 7}, {5, 4, 8}}) {
      const LatentShape shape{.channels = 2, .height = height, .width = width, .patch = 1, .frames = frames};
      std::mt19937 random(5);
      std::normal_distribution<float> normal;
      std::vector<float> latents(static_cast<size_t>(shape.elements())), z;
      for (float& value : latents) value = normal(random);
      for (const float value : latents) z.push_back(value / 0.5f + 0.25f);
      const auto clip = codec->decode(latents, shape);
      ASSERT_TRUE(clip.ok()) << clip.status().message();
      ASSERT_EQ(std::ssize(*clip), 2 * frames - 1);
      const bool is_whole = tile < 0 || std::max(height, width) <= tile / 2;
      int64_t differing = 0;
      for (int64_t t = 0; t < 2 * frames - 1; ++t) {
        const RgbImage& image = (*clip)[static_cast<size_t>(t)];
        ASSERT_EQ(image.height, 2 * height);
        ASSERT_EQ(image.width, 2 * width);
        for (int64_t i = 0; i < std::ssize(image.rgb); ++i) {
          const double value = autoencoder.pixel(z, shape, t, i / 3 / image.width, i / 3 % image.width, i % 3);
          const double expected = std::clamp(value * 0.5 + 0.5, 0.0, 1.0) * 255.0;
          // Half of a step of rounding. Tiles see zeros beyond their edges, where the ramps leave them no weight.
          if (is_whole) ASSERT_NEAR(image.rgb[static_cast<size_t>(i)], expected, 0.51) << t << " " << i;
          else differing += std::abs(image.rgb[static_cast<size_t>(i)] - expected) > 0.51;
        }
      }
      EXPECT_LE(differing, (2 * frames - 1) * height * width * 12 / 3) << "more than the overlaps of tiles";
    }
    // Every second frame, and of it squares of 2x2 pixels.
    const LatentShape shape{.channels = 2, .height = 4, .width = 3, .patch = 1, .frames = 3};
    std::vector<float> pixels(static_cast<size_t>(5 * 8 * 6 * 3));
    std::mt19937 random(9);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (float& value : pixels) value = uniform(random);
    const auto rows = codec->encode_rows(pixels, shape);
    ASSERT_TRUE(rows.ok()) << rows.status().message();
    ASSERT_EQ(std::ssize(*rows), 3 * 4 * 3 * 4);
    for (int64_t at = 0; at < 3 * 4 * 3; ++at)
      for (int64_t k = 0; k < 4; ++k) {
        double sum = 0;
        for (int64_t c = 0; c < 3; ++c)
          for (int64_t tap = 0; tap < 4; ++tap) {
            const int64_t t = at / 12 * 2, y = at / 3 % 4 * 2 + tap / 2, x = at % 3 * 2 + tap % 2;
            sum += double{pixels[static_cast<size_t>(((t * 8 + y) * 6 + x) * 3 + c)]} *
                   double{autoencoder.encoding[static_cast<size_t>((k * 3 + c) * 4 + tap)]};
          }
        ASSERT_NEAR((*rows)[static_cast<size_t>(at * 4 + k)], sum, 1e-5) << at << " " << k;  // 12 products below 1
      }
  }
}

}  // namespace
}  // namespace redline
