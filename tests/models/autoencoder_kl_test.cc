#include <gmock/gmock.h>

#include "models/image/image_models.h"
#include "support/autoencoder_golden.h"
#include "support/image_builders.h"

namespace redline {
namespace {

using testing::ImageGolden;
using testing::NetworkMode;

class AutoencoderKlGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(AutoencoderKlGolden, EqualsDiffusers) {
  const ImageGolden golden = testing::load_image_golden(GetParam());
  testing::expect_like_autoencoder(golden, testing::build_autoencoder_kl);
}

TEST_P(AutoencoderKlGolden, AnyNumberOfThreadsGivesTheSameBits) {
  const ImageGolden golden = testing::load_image_golden(GetParam());
  for (const std::string& run : golden.runs()) {
    const auto one =
        testing::run_autoencoder(golden, testing::build_autoencoder_kl, run, "latents", NetworkMode::kAuto, 1);
    EXPECT_EQ(one,
              testing::run_autoencoder(golden, testing::build_autoencoder_kl, run, "latents", NetworkMode::kAuto, 3));
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, AutoencoderKlGolden, ::testing::Values("kl_flux", "kl_sdxl", "kl_no_attention"),
                         [](const auto& info) { return std::string(info.param); });

TEST(AutoencoderKl, ReadsTheNamesOfOldFiles) {
  ImageGolden golden = testing::load_image_golden("kl_flux");
  const std::string run = golden.runs().front();
  const auto expected =
      testing::run_autoencoder(golden, testing::build_autoencoder_kl, run, "latents", NetworkMode::kF32, 1);
  for (const char* half : {"encoder", "decoder"})
    for (const auto& [now, then] :
         {std::pair{"to_q", "query"}, {"to_k", "key"}, {"to_v", "value"}, {"to_out.0", "proj_attn"}})
      for (const char* what : {"weight", "bias"}) {
        auto node = golden.checkpoint.tensors.extract(fmt::format("{}.mid_block.attentions.0.{}.{}", half, now, what));
        ASSERT_FALSE(node.empty());
        node.key() = fmt::format("{}.mid_block.attentions.0.{}.{}", half, then, what);
        if (node.mapped().view.shape.size() == 2) node.mapped().view.shape.resize(4, 1);  // as single files have them
        golden.checkpoint.tensors.insert(std::move(node));
      }
  EXPECT_EQ(testing::run_autoencoder(golden, testing::build_autoencoder_kl, run, "latents", NetworkMode::kF32, 1),
            expected);
}

TEST(AutoencoderKl, NamesWhatDoesNotFit) {
  const auto message = [](const std::function<void(Checkpoint&)>& change) {
    ImageGolden golden = testing::load_image_golden("kl_flux");
    change(golden.checkpoint);
    auto model = testing::build_autoencoder_kl(golden.checkpoint);
    EXPECT_FALSE(model.ok());
    return model.ok() ? "" : model.status().message();
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(message([](Checkpoint& c) { c.tensors.erase("decoder.conv_in.weight"); }),
              HasSubstr("decoder.conv_in.weight"));
  EXPECT_THAT(message([](Checkpoint& c) { c.tensors.erase("encoder.conv_out.bias"); }),
              HasSubstr("encoder.conv_out.bias"));
  EXPECT_THAT(message([](Checkpoint& c) { c.tensors["decoder.extra"] = c.tensors["decoder.conv_in.bias"]; }),
              HasSubstr("decoder.extra"));
  EXPECT_THAT(message([](Checkpoint& c) { c.tensors["post_quant_conv.bias"] = c.tensors["decoder.conv_in.bias"]; }),
              HasSubstr("post_quant_conv.bias"));
  EXPECT_THAT(message([](Checkpoint& c) {
                c.tensors["encoder.conv_in.weight"].view.shape = {8, 3, 9};
              }),
              HasSubstr("encoder.conv_in.weight is [8, 3, 9]"));
  EXPECT_THAT(message([](Checkpoint& c) { c.config["block_out_channels"] = 8; }), HasSubstr("block_out_channels"));
  EXPECT_THAT(message([](Checkpoint& c) { c.config["block_out_channels"] = {8, -1}; }), HasSubstr("-1"));
  EXPECT_THAT(message([](Checkpoint& c) { c.config["norm_num_groups"] = 3; }), HasSubstr("norm_num_groups 3"));
  EXPECT_THAT(message([](Checkpoint& c) { c.config["act_fn"] = "mish"; }), HasSubstr("mish"));
  EXPECT_THAT(message([](Checkpoint& c) { c.config["scaling_factor"] = "x"; }), HasSubstr("scaling_factor"));
  EXPECT_THAT(message([](Checkpoint& c) { c.config["latents_mean"] = {1.0, 2.0}; }), HasSubstr("latents_mean"));
  EXPECT_THAT(message([](Checkpoint& c) {
                c.config["up_block_types"] = {"UpDecoderBlock2D", "AttnUpDecoderBlock2D"};
              }),
              HasSubstr("AttnUpDecoderBlock2D"));
}

}  // namespace
}  // namespace redline
