// LoRA files beside UNets, of products and of convolutions, in every way of naming that there is.
// tests/golden/image/make_unet_lora.py and make_unet_locon.py make them.
#include <gmock/gmock.h>

#include "diffusion/denoiser.h"
#include "support/image_builders.h"
#include "support/image_golden.h"
#include "support/image_sizes.h"
#include "support/safetensors_file.h"
#include "support/temporary_folder.h"

namespace redline {
namespace {

using ::testing::HasSubstr;
using testing::ImageGolden;
using testing::NetworkMode;
using Set = std::vector<std::pair<std::string, double>>;

/// A golden UNet with room for adapters, about to run its case "one".
struct UnetAdaptersOpened {
  NetworkMode mode;
  ImageGolden golden;
  std::unique_ptr<RuntimeResources> runtime = testing::make_runtime(2);
  std::unique_ptr<Denoiser> denoiser;

  UnetAdaptersOpened(const char* name, NetworkMode in_mode) : mode(in_mode), golden(testing::load_image_golden(name)) {
    const auto& sizes = golden.find("one", "sizes")->values;
    DenoiserBatch batch;
    batch.images = batch.rows = 1;
    batch.latents = {4, static_cast<int64_t>(sizes[1]), static_cast<int64_t>(sizes[2])};
    batch.text_tokens = static_cast<int64_t>(sizes[3]);
    for (const char* condition : {"text", "pooled", "time_ids"})
      if (const auto* given = golden.find("one", condition))
        batch.conditions[condition].assign(given->values.begin(), given->values.end());

    ExecutableOptions options = testing::network_options(mode);
    options.bounds[Symbol::kBatch] = 2;
    options.bounds[Symbol::kTextTokens] = 10;
    options.bounds[Symbol::kImageTokens] = 256;
    testing::set_image_size(options.bounds, 16, 16);
    auto model = testing::build_unet(golden.checkpoint);
    EXPECT_TRUE(model.ok()) << model.status().message();
    auto made = Denoiser::make(std::move(model).value(), options, 8, *runtime);
    EXPECT_TRUE(made.ok()) << made.status().message();
    denoiser = std::move(made).value();
    EXPECT_TRUE(denoiser->begin(std::move(batch)).ok());
  }

  void load(const std::string& file) const {
    auto adapter = AdapterFile::open(file);
    ASSERT_TRUE(adapter.ok()) << adapter.status().message();
    const std::string name = file.substr(file.rfind('/') + 1);
    const Status loaded = denoiser->adapters().load(name.substr(0, name.find('.')), adapter->networks[""],
                                                    mode == NetworkMode::kInterpreter);
    ASSERT_TRUE(loaded.ok()) << loaded.message();
  }
  void expect(const Set& set, const testing::NpyArray& expected) const {
    ASSERT_TRUE(denoiser->adapters().set(set).ok());
    const auto& rows = golden.find("one", "latents")->values;
    const std::vector<float> x(rows.begin(), rows.end());
    std::vector<float> out(x.size());
    const int64_t row[] = {0};
    const Status done = denoiser->evaluate(row, x, golden.find("one", "timestep")->values[0], out);
    ASSERT_TRUE(done.ok()) << done.message();
    // `auto` as for the UNet alone, whose error these products add to.
    EXPECT_LE(testing::relative_error(out, expected), testing::rounds(mode) ? 7e-2 : 1e-4);
  }
};

class UnetAdapters : public ::testing::TestWithParam<NetworkMode> {};

TEST_P(UnetAdapters, EqualDiffusersWithPeft) {
  const UnetAdaptersOpened o("unet_sdxl", GetParam());
  const std::string folder = testing::golden_root() + "/image/unet_lora/";
  auto expected = testing::read_npz(folder + "io.npz");
  ASSERT_TRUE(expected.ok()) << expected.status().message();
  for (const char* name : {"peft", "kohya", "makers", "early"}) o.load(folder + name + ".safetensors");
  const std::vector<std::pair<const char*, Set>> sets = {{"none", {}},
                                                         {"peft", {{"peft", 1.0}}},
                                                         {"kohya", {{"kohya", 0.5}}},
                                                         {"kohya", {{"makers", 0.5}}},
                                                         {"early", {{"early", 1.0}}},
                                                         {"both", {{"peft", 0.6}, {"makers", -1.1}}},
                                                         {"none", {}}};
  for (const auto& [name, set] : sets) {
    SCOPED_TRACE(name);
    o.expect(set, expected->at(fmt::format("{}.velocity", name)));
  }
}

TEST_P(UnetAdapters, OfConvolutionsEqualDiffusersWithPeft) {
  const std::string folder = testing::golden_root() + "/image/unet_locon/";
  auto expected = testing::read_npz(folder + "io.npz");
  ASSERT_TRUE(expected.ok()) << expected.status().message();
  const UnetAdaptersOpened sd15("unet_sd15", GetParam()), sdxl("unet_sdxl", GetParam());
  for (const char* name : {"peft", "kohya"}) sd15.load(folder + name + ".safetensors");
  sdxl.load(folder + "makers.safetensors");
  const std::vector<std::tuple<const char*, const UnetAdaptersOpened*, Set>> sets = {
      {"unet_sd15", &sd15, {}},
      {"peft", &sd15, {{"peft", 1.0}}},
      {"kohya", &sd15, {{"kohya", 0.5}}},
      {"both", &sd15, {{"peft", 0.6}, {"kohya", -1.1}}},
      {"unet_sd15", &sd15, {}},
      {"makers", &sdxl, {{"makers", 1.0}}},
      {"unet_sdxl", &sdxl, {}}};
  for (const auto& [name, opened, set] : sets) {
    SCOPED_TRACE(name);
    opened->expect(set, expected->at(fmt::format("{}.velocity", name)));
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, UnetAdapters, ::testing::ValuesIn(testing::network_modes()),
                         [](const auto& info) { return testing::network_mode_name(info.param); });

TEST(UnetAdapters, AKernelOfAnotherSizeIsNamed) {
  const UnetAdaptersOpened o("unet_sd15", NetworkMode::kF32);
  auto file = AdapterFile::open(testing::golden_root() + "/image/unet_locon/kohya.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().message();
  AdapterMatrix& conv = file->networks[""].at("mid_block_resnets_0_conv2");
  ASSERT_EQ(conv.down.shape.size(), 4u);
  conv.down.shape = {3, 16};
  EXPECT_THAT(o.denoiser->adapters().load("flat", file->networks[""], false).message(),
              HasSubstr("mid_block_resnets_0_conv2 is [16, 3] x [3, 16], the network has room for [16, 3] x [3, 16, 3, "
                        "3]"));
}

TEST(UnetAdapters, OtherKindsAreRefusedByName) {
  for (const auto& [kind, words] : {std::pair{"lora_mid.weight", "Tucker forms are not supported"},
                                    {"b_norm", "trained norms are not supported"},
                                    {"glora", "LoKr's lokr_w or .diff"}}) {
    const testing::TemporaryFolder folder;
    const std::string path = folder.path() + "/other.safetensors", tensor = fmt::format("lora_unet_conv_in.{}", kind);
    testing::SafetensorsFile file;
    const float one = 1;
    file.add(tensor, "F32", {1, 1}, &one, sizeof one);
    file.write(path);
    const Status status = AdapterFile::open(path).status();
    EXPECT_EQ(status.code(), Code::unsupported);
    EXPECT_THAT(status.message(), HasSubstr(tensor + " belongs to no LoRA pair"));
    EXPECT_THAT(status.message(), HasSubstr(words));
  }
}

}  // namespace
}  // namespace redline
