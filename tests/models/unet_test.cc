#include <gmock/gmock.h>

#include "models/image/image_models.h"
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
  const int64_t sides[] = {static_cast<int64_t>(size[1]), static_cast<int64_t>(size[2])};
  const int64_t count = sizes[Symbol::kBatch] * sides[0] * sides[1] * model->out_channels;
  model->grid.set(sizes, sides);
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

// The settings of published networks that differ from each other; the rest are what diffusers writes for all of them.
constexpr const char* kCommonSettings = R"({
  "_class_name": "UNet2DConditionModel", "act_fn": "silu", "center_input_sample": false, "downsample_padding": 1,
  "flip_sin_to_cos": true, "freq_shift": 0, "in_channels": 4, "layers_per_block": 2, "mid_block_scale_factor": 1,
  "norm_eps": 1e-05, "norm_num_groups": 32, "out_channels": 4})";
constexpr const char* kSd1Settings = R"({
  "attention_head_dim": 8, "block_out_channels": [320, 640, 1280, 1280], "cross_attention_dim": 768, "sample_size": 64,
  "down_block_types": ["CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"],
  "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"]})";
// Keys of later versions of diffusers, most of them at the values that change nothing.
constexpr const char* kLaterSettings = R"({
  "addition_embed_type": "text_time", "addition_embed_type_num_heads": 64, "addition_time_embed_dim": 256,
  "attention_type": "default", "class_embed_type": null, "class_embeddings_concat": false, "conv_in_kernel": 3,
  "conv_out_kernel": 3, "cross_attention_norm": null, "dropout": 0.0, "dual_cross_attention": false,
  "encoder_hid_dim": null, "encoder_hid_dim_type": null, "mid_block_only_cross_attention": null,
  "mid_block_type": "UNetMidBlock2DCrossAttn", "num_attention_heads": null, "num_class_embeds": null,
  "only_cross_attention": false, "resnet_out_scale_factor": 1.0, "resnet_skip_time_act": false,
  "resnet_time_scale_shift": "default", "reverse_transformer_layers_per_block": null, "time_cond_proj_dim": null,
  "time_embedding_act_fn": null, "time_embedding_dim": null, "time_embedding_type": "positional",
  "timestep_post_act": null, "upcast_attention": null, "use_linear_projection": true, "sample_size": 128})";
constexpr const char* kSdxlSettings = R"({
  "attention_head_dim": [5, 10, 20], "block_out_channels": [320, 640, 1280], "cross_attention_dim": 2048,
  "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
  "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
  "projection_class_embeddings_input_dim": 2816, "transformer_layers_per_block": [1, 2, 10]})";

// Every published configuration is understood: what is missing then is the first tensor.
TEST(Unet, UnderstandsPublishedConfigurations) {
  const struct {
    const char* network;
    std::vector<const char*> settings;
  } kPublished[] = {
      {"stable-diffusion-v1-5", {kSd1Settings}},
      {"stable-diffusion-inpainting", {kSd1Settings, R"({"in_channels": 9})"}},
      {"stable-diffusion-2-1",
       {kSd1Settings, R"({"attention_head_dim": [5, 10, 20, 20], "cross_attention_dim": 1024, "sample_size": 96,
          "dual_cross_attention": false, "num_class_embeds": null, "only_cross_attention": false,
          "use_linear_projection": true, "upcast_attention": true})"}},
      {"stable-diffusion-xl-base-1.0", {kLaterSettings, kSdxlSettings}},
      {"stable-diffusion-xl-refiner-1.0",
       {kLaterSettings, R"({"attention_head_dim": [6, 12, 24, 24], "block_out_channels": [384, 768, 1536, 1536],
          "cross_attention_dim": 1280, "transformer_layers_per_block": 4, "projection_class_embeddings_input_dim": 2560,
          "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"],
          "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"]})"}},
      {"Kolors", {kLaterSettings, kSdxlSettings, R"({"encoder_hid_dim": 4096, "encoder_hid_dim_type": "text_proj",
          "projection_class_embeddings_input_dim": 5632, "upcast_attention": false})"}},
      {"playground-v2.5", {kLaterSettings, kSdxlSettings, R"({"upcast_attention": false})"}},
  };
  for (const auto& [network, settings] : kPublished) {
    Checkpoint checkpoint;
    checkpoint.config = nlohmann::json::parse(kCommonSettings);
    for (const char* part : settings) checkpoint.config.update(nlohmann::json::parse(part));
    const auto model = testing::build_unet(checkpoint);
    ASSERT_FALSE(model.ok());
    EXPECT_THAT(model.status().message(), ::testing::HasSubstr("time_embedding.linear_1.weight is missing")) << network;
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
