// SD3 and PixArt: transformers whose positions are added to what comes in.
#include <gmock/gmock.h>

#include "models/image/image_models.h"
#include "support/image_builders.h"
#include "support/image_golden.h"

namespace redline {
namespace {

using testing::ImageGolden;
using testing::NetworkMode;

Result<DenoiserModel> build_dit(const Checkpoint& checkpoint, int64_t front_blocks) {
  return testing::build_denoiser(checkpoint.config["_class_name"].get<std::string>(), checkpoint, front_blocks);
}

/// head(body(probe(x))) of one run.
std::vector<float> run_dit(const ImageGolden& golden, const std::string& run, int64_t front_blocks, NetworkMode mode,
                           int threads) {
  auto built = build_dit(golden.checkpoint, front_blocks);
  EXPECT_TRUE(built.ok()) << built.status().message();
  if (!built.ok()) return {};
  DenoiserModel model = std::move(built).value();
  const auto& size = golden.find(run, "sizes")->values;
  const auto batch = static_cast<int64_t>(size[0]), height = static_cast<int64_t>(size[1]),
             width = static_cast<int64_t>(size[2]);
  SymbolValues sizes;
  sizes[Symbol::kBatch] = batch;
  sizes[Symbol::kImageTokens] = height * width;
  sizes[Symbol::kTextTokens] = static_cast<int64_t>(size[3]);
  SymbolValues bounds = sizes;  // larger than needed, as an engine's are
  bounds[Symbol::kBatch] += 1;
  bounds[Symbol::kImageTokens] += 13;
  const auto runtime = testing::make_runtime(threads);
  Executable probe = make_network(std::move(model.front), bounds, mode, *runtime);
  Executable body = make_network(std::move(model.middle), bounds, mode, *runtime);
  Executable head = make_network(std::move(model.tail), bounds, mode, *runtime);
  auto positions = model.position_table({1, height, width});
  EXPECT_TRUE(positions.ok()) << positions.status().message();
  for (int64_t b = 0; b < batch; ++b)
    std::copy(positions->begin(), positions->end(),
              probe.input("positions") + b * static_cast<int64_t>(positions->size()));
  const auto give_lengths = [&](Executable& network) {
    if (!network.has_input("key_lengths")) return;
    const auto& lengths = golden.find(run, "key_lengths")->values;
    for (size_t i = 0; i < lengths.size(); ++i) network.input_i32("key_lengths")[i] = static_cast<int32_t>(lengths[i]);
  };
  const auto give = [&](const Executable& from, Executable& to) {
    for (const Executable::Port& port : to.inputs())
      if (from.has_output(port.name))
        std::copy_n(from.output(port.name), num_elements(port.shape).eval(sizes), to.input(port.name));
  };
  fill_inputs(probe, golden, run, {"latents", "timestep", "pooled", "text"});
  give_lengths(probe);
  EXPECT_TRUE(probe.run(sizes).ok());
  if (!probe.has_output("text")) fill_inputs(body, golden, run, {"text"});
  give(probe, body);
  give(probe, head);
  give_lengths(body);
  EXPECT_TRUE(body.run(sizes).ok());
  give(body, head);
  EXPECT_TRUE(head.run(sizes).ok());
  const float* velocity = head.output("model_output");
  return {velocity, velocity + batch * height * width * model.out_channels};
}

class DitGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(DitGolden, EqualsDiffusers) {
  const ImageGolden golden = testing::load_image_golden(GetParam());
  ASSERT_FALSE(golden.arrays.empty());
  for (const std::string& run : golden.runs())
    for (const NetworkMode mode : testing::network_modes())
      for (const int64_t front_blocks : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{100}}) {
        // `auto` rounds activations and keys to bfloat16 and float16 (2^-9 each); some ten products in a row, whose
        // errors add up as a random walk: 2^-9 sqrt(2 * 10).
        const double bound = testing::rounds(mode) ? 1e-2 : 1e-4;
        const auto velocity = run_dit(golden, run, front_blocks, mode, 2);
        const double error = testing::relative_error(velocity, *golden.find(run, "velocity"));
        EXPECT_LE(error, bound) << run << " " << testing::network_mode_name(mode) << ", probe of " << front_blocks
                                << " blocks";
        RecordProperty(run + "." + testing::network_mode_name(mode), fmt::format("{:.2g}", error));
        if ((mode == NetworkMode::kInterpreter || testing::is_emulated(mode)) && front_blocks == 1) break;
      }
}

TEST_P(DitGolden, AnyNumberOfThreadsGivesTheSameBits) {
  const ImageGolden golden = testing::load_image_golden(GetParam());
  for (const std::string& run : golden.runs())
    EXPECT_EQ(run_dit(golden, run, 1, NetworkMode::kAuto, 1), run_dit(golden, run, 1, NetworkMode::kAuto, 3));
}

INSTANTIATE_TEST_SUITE_P(Cases, DitGolden,
                         ::testing::Values("sd3", "sd35_medium", "sd35_large", "pixart_sigma", "pixart_plain"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Dit, MadeWeightsHavePositionsToo) {
  for (const char* name : {"sd3", "pixart_sigma"}) {
    Checkpoint checkpoint;
    checkpoint.config = testing::load_image_golden(name).checkpoint.config;
    checkpoint.make_tensor = [](const std::string& tensor, const std::vector<int64_t>& shape) -> Result<WeightSource> {
      WeightSource source;
      source.view = {DType::kF32, shape, nullptr};
      REDLINE_ASSIGN(source.file, MappedFile::make(tensor, source.view.bytes(), [](uint8_t*) {}));
      source.view.data = source.file->data();
      return source;
    };
    auto model = build_dit(checkpoint, 1);
    ASSERT_TRUE(model.ok()) << model.status().message();
    const auto positions = model->position_table({1, 2, 3});
    ASSERT_TRUE(positions.ok());
    EXPECT_EQ(positions->size(), size_t{2 * 3 * 24});
  }
}

TEST(Dit, BadConfigsAreNamed) {
  auto expect = [](const char* name, const char* key, nlohmann::json value, const char* message) {
    ImageGolden golden = testing::load_image_golden(name);
    golden.checkpoint.config[key] = std::move(value);
    const auto built = build_dit(golden.checkpoint, 1);
    ASSERT_FALSE(built.ok()) << key;
    EXPECT_THAT(built.status().message(), ::testing::HasSubstr(message));
  };
  expect("sd3", "caption_projection_dim", 28, "caption_projection_dim is 28, 3 heads of 8 make 24");
  expect("sd3", "num_attention_heads", 4, "caption_projection_dim is 24");
  expect("sd3", "qk_norm", "layer_norm", "qk_norm \"layer_norm\"");
  expect("sd3", "dual_attention_layers", {2}, "numbers of the 2 layers");
  expect("sd3", "dual_attention_layers", {0}, "transformer_blocks.0.norm1.linear.weight is [144, 24]");
  expect("sd3", "num_layers", 3, "transformer_blocks.1.norm1_context.linear.weight is [48, 24]");
  expect("sd3", "pos_embed_max_size", 13, "pos_embed.pos_embed is [1, 144, 24]");
  expect("sd3", "patch_size", 4, "pos_embed.proj.weight is [24, 4, 2, 2], the config requires [24, 4, 4, 4]");
  expect("sd35_medium", "qk_norm", nullptr, "norm_added_k.weight");
  expect("pixart_sigma", "use_additional_conditions", true, "PixArt-Alpha");
  expect("pixart_sigma", "norm_type", "ada_norm", "norm_type \"ada_norm\"");
  expect("pixart_sigma", "activation_fn", "geglu", "activation_fn \"geglu\"");
  expect("pixart_sigma", "caption_channels", nullptr, "is not used by this architecture");
  expect("pixart_sigma", "num_layers", 1, "is not used by this architecture");

  const ImageGolden golden = testing::load_image_golden("sd3");
  auto model = build_dit(golden.checkpoint, 1);
  ASSERT_TRUE(model.ok());
  const auto positions = model->position_table({1, 13, 2});
  ASSERT_FALSE(positions.ok());
  EXPECT_THAT(positions.status().message(), ::testing::HasSubstr("at most 24 latent pixels each way"));
}

}  // namespace
}  // namespace redline
