#include <gmock/gmock.h>

#include "models/image_models.h"
#include "support/image_builders.h"
#include "support/image_golden.h"

namespace redline {
namespace {

using testing::ImageGolden;
using testing::NetworkMode;

std::vector<float> run_unet(const ImageGolden& golden, const std::string& run, NetworkMode mode, int threads) {
  auto model = testing::build_unet(golden.checkpoint);
  EXPECT_TRUE(model.ok()) << model.status().message();
  if (!model.ok()) return {};
  const auto& size = golden.find(run, "sizes")->values;
  SymbolValues sizes;
  sizes[Symbol::kBatch] = static_cast<int64_t>(size[0]);
  sizes[Symbol::kTextTokens] = static_cast<int64_t>(size[3]);
  const std::pair<Symbol, Symbol> kLevels[] = {{Symbol::kHeight, Symbol::kWidth},
                                               {Symbol::kHeight2, Symbol::kWidth2},
                                               {Symbol::kHeight4, Symbol::kWidth4},
                                               {Symbol::kHeight8, Symbol::kWidth8}};
  auto height = static_cast<int64_t>(size[1]), width = static_cast<int64_t>(size[2]);
  const int64_t count = sizes[Symbol::kBatch] * height * width * model->out_channels;
  for (const auto& [h, w] : kLevels) {
    sizes[h] = height;
    sizes[w] = width;
    height = (height + 1) / 2;
    width = (width + 1) / 2;
  }
  SymbolValues bounds = sizes;  // larger than needed, as an engine's are
  for (int64_t& bound : bounds.value) bound += 1;
  const auto runtime = testing::make_runtime(threads);
  Executable network = make_network(std::move(model->front), bounds, mode, *runtime);
  fill_inputs(network, golden, run, {"latents", "timestep", "text", "pooled", "time_ids"});
  const Status status = network.run(sizes);
  EXPECT_TRUE(status.ok()) << status.message();
  const float* velocity = network.output("model_output");
  return {velocity, velocity + count};
}

class UnetGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(UnetGolden, EqualsDiffusers) {
  const ImageGolden golden = testing::load_image_golden(GetParam());
  ASSERT_FALSE(golden.arrays.empty());
  for (const std::string& run : golden.runs())
    for (const NetworkMode mode : testing::network_modes()) {
      // `auto` rounds activations and keys to bfloat16 and float16 (2^-9 each) before some thirty products in a row,
      // whose errors add up as a random walk; norms of a few values make the most of them.
      const double bound = testing::rounds(mode) ? 5e-2 : 1e-4;
      EXPECT_LE(testing::relative_error(run_unet(golden, run, mode, 2), *golden.find(run, "velocity")), bound)
          << run << " " << testing::network_mode_name(mode);
    }
}

TEST_P(UnetGolden, AnyNumberOfThreadsGivesTheSameBits) {
  const ImageGolden golden = testing::load_image_golden(GetParam());
  for (const std::string& run : golden.runs())
    EXPECT_EQ(run_unet(golden, run, NetworkMode::kAuto, 1), run_unet(golden, run, NetworkMode::kAuto, 3));
}

INSTANTIATE_TEST_SUITE_P(Cases, UnetGolden, ::testing::Values("unet_sd15", "unet_sdxl", "unet_inpaint"),
                         [](const auto& info) { return std::string(info.param); });

// Every published configuration is understood: what is missing then is the first tensor.
TEST(Unet, UnderstandsPublishedConfigurations) {
  const std::string root = REDLINE_SHARED_DIR "/models/diffusion-configs/";
  for (const char* folder :
       {"runwayml/stable-diffusion-v1-5", "runwayml/stable-diffusion-inpainting", "stabilityai/stable-diffusion-2-1",
        "stabilityai/stable-diffusion-xl-base-1.0", "stabilityai/stable-diffusion-xl-refiner-1.0", "Kwai-Kolors/Kolors",
        "playgroundai/playground-v2.5-1024px-aesthetic"}) {
    Checkpoint checkpoint;
    checkpoint.config = testing::read_json(root + folder + "/unet/config.json");
    if (!checkpoint.config.is_object()) GTEST_SKIP() << root << folder << " is not there";
    const auto model = testing::build_unet(checkpoint);
    ASSERT_FALSE(model.ok());
    EXPECT_THAT(model.status().message(), ::testing::HasSubstr("time_embedding.linear_1.weight is missing")) << folder;
  }
}

TEST(Unet, NamesWhatDoesNotFit) {
  const auto message = [](const std::function<void(Checkpoint&)>& change) {
    ImageGolden golden = testing::load_image_golden("unet_sdxl");
    change(golden.checkpoint);
    auto model = testing::build_unet(golden.checkpoint);
    EXPECT_FALSE(model.ok());
    return model.ok() ? "" : model.status().message();
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(
      message([](Checkpoint& c) { c.tensors.erase("mid_block.attentions.0.transformer_blocks.1.attn2.to_k.weight"); }),
      HasSubstr("mid_block.attentions.0.transformer_blocks.1.attn2.to_k.weight"));
  EXPECT_THAT(message([](Checkpoint& c) { c.tensors["class_embedding.weight"] = c.tensors["conv_in.bias"]; }),
              HasSubstr("class_embedding.weight"));
  EXPECT_THAT(message([](Checkpoint& c) {
                c.config["block_out_channels"] = {8, 12, 16};
              }),
              HasSubstr("block_out_channels"));
  EXPECT_THAT(message([](Checkpoint& c) { c.config["block_out_channels"] = {8, 0}; }), HasSubstr("block_out_channels"));
  EXPECT_THAT(message([](Checkpoint& c) { c.config["attention_head_dim"] = 5; }), HasSubstr("attention_head_dim 5"));
  EXPECT_THAT(message([](Checkpoint& c) { c.config["norm_num_groups"] = 3; }), HasSubstr("norm_num_groups 3"));
  EXPECT_THAT(message([](Checkpoint& c) {
                c.config["down_block_types"] = {"DownBlock2D", "SimpleCrossAttnDownBlock2D"};
              }),
              HasSubstr("SimpleCrossAttnDownBlock2D"));
  EXPECT_THAT(message([](Checkpoint& c) { c.config["up_block_types"] = {"UpBlock2D"}; }),
              HasSubstr("2 blocks down and 1 up"));
  EXPECT_THAT(message([](Checkpoint& c) { c.config["addition_embed_type"] = "image"; }), HasSubstr("\"image\""));
  EXPECT_THAT(message([](Checkpoint& c) { c.config["projection_class_embeddings_input_dim"] = 20; }),
              HasSubstr("20 has no room"));
  EXPECT_THAT(message([](Checkpoint& c) { c.config["class_embed_type"] = "timestep"; }), HasSubstr("class_embed_type"));
  EXPECT_THAT(message([](Checkpoint& c) { c.config["time_cond_proj_dim"] = 256; }), HasSubstr("time_cond_proj_dim"));
  EXPECT_THAT(message([](Checkpoint& c) { c.config["act_fn"] = "gelu"; }), HasSubstr("gelu"));
}

}  // namespace
}  // namespace redline
