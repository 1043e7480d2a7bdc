#include <gmock/gmock.h>

#include "models/image/image_models.h"
#include "support/autoencoder_golden.h"
#include "support/image_builders.h"

namespace redline {
namespace {

using testing::ImageGolden;
using testing::NetworkMode;

TEST(AutoencoderTinyGolden, EqualsDiffusers) {
  testing::expect_like_autoencoder(testing::load_image_golden("tiny"), testing::build_autoencoder_tiny);
}

TEST(AutoencoderTinyGolden, FilesOfTheOriginalAreTheSameNetwork) {
  ImageGolden golden = testing::load_image_golden("tiny");
  const std::string folder = testing::golden_root() + "/image/tiny";
  auto original = open_original_autoencoder_tiny(folder + "/original_encoder.pth", folder + "/original_decoder.pth");
  ASSERT_TRUE(original.ok()) << original.status().message();
  for (const char* key : {"num_encoder_blocks", "num_decoder_blocks", "latent_channels"})
    EXPECT_EQ(original->config[key], golden.checkpoint.config[key]) << key;
  for (const std::string& run : golden.runs())
    for (const char* input : {"latents", "image"}) {
      const auto expected =
          testing::run_autoencoder(golden, testing::build_autoencoder_tiny, run, input, NetworkMode::kF32, 1);
      std::swap(golden.checkpoint, *original);
      EXPECT_EQ(testing::run_autoencoder(golden, testing::build_autoencoder_tiny, run, input, NetworkMode::kF32, 1),
                expected);
      std::swap(golden.checkpoint, *original);
    }
}

TEST(AutoencoderTiny, NamesWhatDoesNotFit) {
  const auto message = [](const std::function<void(Checkpoint&)>& change) {
    ImageGolden golden = testing::load_image_golden("tiny");
    change(golden.checkpoint);
    auto model = testing::build_autoencoder_tiny(golden.checkpoint);
    EXPECT_FALSE(model.ok());
    return model.ok() ? "" : model.status().message();
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(message([](Checkpoint& c) { c.tensors.erase("decoder.layers.0.weight"); }),
              HasSubstr("decoder.layers.0.weight"));
  EXPECT_THAT(message([](Checkpoint& c) { c.config["num_decoder_blocks"] = {2, 1, 2}; }), HasSubstr("decoder.layers."));
  EXPECT_THAT(message([](Checkpoint& c) { c.config["num_decoder_blocks"] = {2, 1}; }), HasSubstr("num_decoder_blocks"));
  EXPECT_THAT(message([](Checkpoint& c) { c.config["num_encoder_blocks"] = {1, -2, 1}; }), HasSubstr("-2"));
  EXPECT_THAT(message([](Checkpoint& c) { c.config["num_encoder_blocks"] = "many"; }), HasSubstr("many"));
  EXPECT_THAT(message([](Checkpoint& c) { c.config["decoder_block_out_channels"] = {8, 16, 8}; }), HasSubstr("16"));
  EXPECT_THAT(message([](Checkpoint& c) { c.config["act_fn"] = "mish"; }), HasSubstr("mish"));
  EXPECT_THAT(message([](Checkpoint& c) { c.config["upsampling_scaling_factor"] = 3; }), HasSubstr("nearest"));
}

}  // namespace
}  // namespace redline
