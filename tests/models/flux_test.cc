#include "models/image/image_models.h"

#include <gmock/gmock.h>

#include "support/image_builders.h"
#include "support/image_golden.h"

namespace redline {
namespace {

using testing::ImageGolden;
using testing::NetworkMode;

/// head(body(probe(x))) of one run.
std::vector<float> run_flux(const ImageGolden& golden, const std::string& run, int64_t front_blocks, NetworkMode mode,
                            int threads) {
  auto built = testing::build_flux(golden.checkpoint, front_blocks);
  EXPECT_TRUE(built.ok()) << built.status().message();
  if (!built.ok()) return {};
  DenoiserModel model = std::move(built).value();
  const auto& size = golden.find(run, "sizes")->values;
  const auto batch = static_cast<int64_t>(size[0]), height = static_cast<int64_t>(size[1]),
             width = static_cast<int64_t>(size[2]), text = static_cast<int64_t>(size[3]);
  SymbolValues sizes;
  sizes[Symbol::kBatch] = batch;
  sizes[Symbol::kImageTokens] = height * width;
  sizes[Symbol::kTextTokens] = text;
  SymbolValues bounds = sizes;  // larger than needed, as an engine's are
  bounds[Symbol::kBatch] += 1;
  bounds[Symbol::kImageTokens] += 13;
  const auto runtime = testing::make_runtime(threads);
  Executable probe = make_network(std::move(model.front), bounds, mode, *runtime);
  Executable body = make_network(std::move(model.middle), bounds, mode, *runtime);
  Executable head = make_network(std::move(model.tail), bounds, mode, *runtime);
  const std::vector<float> rope = model.rope_table(text, {1, height, width});
  for (Executable* network : {&probe, &body})
    if (network->has_input("rope"))
      for (int64_t b = 0; b < batch; ++b)
        std::copy(rope.begin(), rope.end(), network->input("rope") + b * static_cast<int64_t>(rope.size()));
  fill_inputs(probe, golden, run, {"latents", "timestep", "guidance", "pooled", "text"});
  const int64_t D = golden.checkpoint.config["num_attention_heads"].get<int64_t>() *
                    golden.checkpoint.config["attention_head_dim"].get<int64_t>();
  EXPECT_TRUE(probe.run(sizes).ok());
  std::copy_n(probe.output("image"), batch * height * width * D, body.input("image"));
  std::copy_n(probe.output("text"), batch * text * D, body.input("text"));
  std::copy_n(probe.output("carry.conditioning"), batch * D, body.input("carry.conditioning"));
  std::copy_n(probe.output("carry.conditioning"), batch * D, head.input("carry.conditioning"));
  EXPECT_TRUE(body.run(sizes).ok());
  std::copy_n(body.output("image"), batch * height * width * D, head.input("image"));
  EXPECT_TRUE(head.run(sizes).ok());
  const float* velocity = head.output("model_output");
  return {velocity, velocity + batch * height * width * model.out_channels};
}

class FluxGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(FluxGolden, EqualsDiffusers) {
  const ImageGolden golden = testing::load_image_golden(GetParam());
  ASSERT_FALSE(golden.arrays.empty());
  for (const std::string& run : golden.runs())
    for (const NetworkMode mode : testing::network_modes())
      for (const int64_t front_blocks : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{100}}) {
        // `auto` rounds activations and keys to bfloat16 and float16 (2^-9 each); some ten products in a row, whose
        // errors add up as a random walk in networks of this width.
        const double bound = testing::rounds(mode) ? 3e-2 : 1e-4;
        const auto velocity = run_flux(golden, run, front_blocks, mode, 2);
        EXPECT_LE(testing::relative_error(velocity, *golden.find(run, "velocity")), bound)
            << run << " " << testing::network_mode_name(mode) << ", probe of " << front_blocks << " blocks";
        if (mode == NetworkMode::kInterpreter) break;
        if (testing::is_emulated(mode) && front_blocks == 1) break;
      }
}

TEST_P(FluxGolden, AnyNumberOfThreadsGivesTheSameBits) {
  const ImageGolden golden = testing::load_image_golden(GetParam());
  for (const std::string& run : golden.runs())
    EXPECT_EQ(run_flux(golden, run, 1, NetworkMode::kAuto, 1), run_flux(golden, run, 1, NetworkMode::kAuto, 3));
}

INSTANTIATE_TEST_SUITE_P(Cases, FluxGolden, ::testing::Values("flux_dev", "flux_schnell"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Flux, OperationsAreCounted) {
  const ImageGolden golden = testing::load_image_golden("flux_schnell");
  auto model = testing::build_flux(golden.checkpoint, 1);
  ASSERT_TRUE(model.ok());
  SymbolValues sizes;
  sizes[Symbol::kBatch] = 2;
  sizes[Symbol::kImageTokens] = 50;
  sizes[Symbol::kTextTokens] = 7;
  // Two single blocks over 114 rows of 30: q, k, v, the 4 x 30 of the feed-forward in, 5 x 30 out, a table of 3 x 30
  // for each of the two items; scores and sums of 57 with 57.
  const int64_t D = 30;
  const int64_t block = 2 * (114 * D * (3 * D + 4 * D) + 114 * 5 * D * D + 2 * D * 3 * D) + 2 * 57 * 57 * 4 * D;
  EXPECT_EQ(model->middle.flops().eval(sizes), 2 * block);
}

TEST(Flux, BadConfigsAreNamed) {
  ImageGolden golden = testing::load_image_golden("flux_dev");
  auto expect = [&](const char* key, nlohmann::json value, const char* message) {
    const nlohmann::json kept = golden.checkpoint.config;
    golden.checkpoint.config[key] = std::move(value);
    const auto built = testing::build_flux(golden.checkpoint, 1);
    golden.checkpoint.config = kept;
    ASSERT_FALSE(built.ok()) << key;
    EXPECT_THAT(built.status().message(), ::testing::HasSubstr(message));
  };
  expect("axes_dims_rope", {4, 6, 8}, "adds up to 18, a head has 16 elements");
  expect("axes_dims_rope", {3, 7, 6}, "even numbers");
  expect("num_layers", 3, "transformer_blocks.2.norm1.linear.weight is missing");
  expect("num_layers", 1, "is not used by this architecture");
  expect("joint_attention_dim", 32, "context_embedder.weight is [32, 24], the config requires [32, 32]");
  expect("patch_size", 2, "patch_size 2");
}

}  // namespace
}  // namespace redline
