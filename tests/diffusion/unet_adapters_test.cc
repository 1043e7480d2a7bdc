// LoRA files beside a UNet, in every way of naming that there is. tests/golden/image/make_unet_lora.py makes them.
#include <gmock/gmock.h>

#include "diffusion/denoiser.h"
#include "support/image_golden.h"

namespace redline {
namespace {

using testing::ImageGolden;
using testing::NetworkMode;

class UnetAdapters : public ::testing::TestWithParam<NetworkMode> {};

TEST_P(UnetAdapters, EqualDiffusersWithPeft) {
  const NetworkMode mode = GetParam();
  const ImageGolden golden = testing::load_image_golden("unet_sdxl");
  const auto& sizes = golden.find("one", "sizes")->values;
  DenoiserBatch batch;
  batch.pictures = batch.rows = 1;
  batch.layout = {4, static_cast<int64_t>(sizes[1]), static_cast<int64_t>(sizes[2])};
  batch.text_tokens = static_cast<int64_t>(sizes[3]);
  for (const char* name : {"text", "pooled", "time_ids"}) {
    const auto& values = golden.find("one", name)->values;
    batch.conditions[name].assign(values.begin(), values.end());
  }
  const LatentLayout layout = batch.layout;

  NetworkOptions options;
  options.compile.kernels = cpu_kernels().value();
  options.compile.exact_f32 = mode != NetworkMode::kAuto;
  options.compile.kv_format = mode == NetworkMode::kAuto ? KvFormat::kF16 : KvFormat::kF32;
  options.interpret = mode == NetworkMode::kInterpreter;
  options.compile.bounds[Symbol::kBatch] = 2;
  options.compile.bounds[Symbol::kTextTokens] = 10;
  options.compile.bounds[Symbol::kImageTokens] = 256;
  set_latent_size(options.compile.bounds, 16, 16);
  const auto team = testing::make_team(2);
  auto model = build_unet(golden.checkpoint);
  ASSERT_TRUE(model.ok()) << model.status().message();
  auto denoiser = Denoiser::make(std::move(model).value(), options, 8, *team);
  ASSERT_TRUE(denoiser.ok()) << denoiser.status().message();
  ASSERT_TRUE((*denoiser)->begin(std::move(batch)).ok());

  const std::string folder = testing::golden_root() + "/image/unet_lora/";
  auto expected = testing::read_npz(folder + "io.npz");
  ASSERT_TRUE(expected.ok()) << expected.status().message();
  AdapterBank& bank = (*denoiser)->adapters();
  for (const char* name : {"peft", "kohya", "makers", "early"}) {
    auto file = AdapterFile::open(folder + name + ".safetensors");
    ASSERT_TRUE(file.ok()) << file.status().message();
    const Status loaded = bank.load(name, file->networks[""], mode == NetworkMode::kInterpreter);
    ASSERT_TRUE(loaded.ok()) << loaded.message();
  }
  const auto& rows = golden.find("one", "latents")->values;
  const std::vector<float> packed(rows.begin(), rows.end());
  std::vector<float> x(packed.size()), out(packed.size()), velocity(packed.size());
  unpack_latents(layout, packed.data(), 4, x.data());
  using Set = std::vector<std::pair<std::string, double>>;
  const std::vector<std::pair<const char*, Set>> sets = {{"none", {}},
                                                         {"peft", {{"peft", 1.0}}},
                                                         {"kohya", {{"kohya", 0.5}}},
                                                         {"kohya", {{"makers", 0.5}}},
                                                         {"early", {{"early", 1.0}}},
                                                         {"both", {{"peft", 0.6}, {"makers", -1.1}}},
                                                         {"none", {}}};
  for (const auto& [name, set] : sets) {
    ASSERT_TRUE(bank.set(set).ok());
    const int64_t row[] = {0};
    const Status done = (*denoiser)->evaluate(row, x, golden.find("one", "timestep")->values[0], out);
    ASSERT_TRUE(done.ok()) << done.message();
    pack_latents(layout, out.data(), velocity.data());
    // `auto` as for the UNet alone, whose error these products add to.
    EXPECT_LE(testing::relative_error(velocity, expected->at(fmt::format("{}.velocity", name))),
              mode == NetworkMode::kAuto ? 7e-2 : 1e-4)
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, UnetAdapters,
                         ::testing::Values(NetworkMode::kInterpreter, NetworkMode::kF32, NetworkMode::kAuto),
                         [](const auto& info) { return testing::network_mode_name(info.param); });

}  // namespace
}  // namespace redline
