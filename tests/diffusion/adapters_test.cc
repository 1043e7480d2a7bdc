#include "diffusion/adapters.h"

#include <gmock/gmock.h>

#include "diffusion/denoiser.h"
#include "support/image_builders.h"
#include "support/image_golden.h"

namespace redline {
namespace {

using ::testing::HasSubstr;
using testing::ImageGolden;
using testing::NetworkMode;

std::string adapters_lora(const char* name) {
  return fmt::format("{}/image/flux_lora/{}.safetensors", testing::golden_root(), name);
}

/// The transformer of flux_dev with room for adapters, and its run "one" begun.
struct AdaptersOpened {
  std::unique_ptr<RuntimeResources> runtime = testing::make_runtime(2);
  ImageGolden golden = testing::load_image_golden("flux_dev");
  LatentLayout layout;
  std::unique_ptr<Denoiser> denoiser;

  explicit AdaptersOpened(NetworkMode mode, int64_t max_rank = 16, DType type = DType::kBF16) {
    const auto& sizes = golden.find("one", "sizes")->values;
    layout = {.channels = 4,
              .height = 2 * static_cast<int64_t>(sizes[1]),
              .width = 2 * static_cast<int64_t>(sizes[2]),
              .patch = 2};
    ExecutableOptions options = testing::network_options(mode);
    options.bounds[Symbol::kBatch] = 2;
    options.bounds[Symbol::kImageTokens] = 20;
    options.bounds[Symbol::kTextTokens] = 10;
    set_latent_size(options.bounds, 16, 16);
    auto model = testing::build_flux(golden.checkpoint, 1);
    EXPECT_TRUE(model.ok());
    auto made = Denoiser::make(std::move(model).value(), options, max_rank, *runtime);
    EXPECT_TRUE(made.ok()) << made.status().message();
    denoiser = std::move(made).value();
    DenoiserBatch batch;
    batch.images = batch.rows = 1;
    batch.layout = layout;
    batch.text_tokens = static_cast<int64_t>(sizes[3]);
    for (const char* name : {"text", "pooled", "guidance"}) {
      const auto& values = golden.find("one", name)->values;
      batch.conditions[name].assign(values.begin(), values.end());
    }
    EXPECT_TRUE(denoiser->begin(std::move(batch)).ok());
  }

  std::vector<float> velocity() {
    const auto& rows = golden.find("one", "latents")->values;
    const std::vector<float> packed(rows.begin(), rows.end());
    std::vector<float> x(packed.size()), out(packed.size());
    unpack_latents(layout, packed.data(), 4, x.data());
    const int64_t row[] = {0};
    EXPECT_TRUE(denoiser->evaluate(row, x, 750, out).ok());
    std::vector<float> result(out.size());
    pack_latents(layout, out.data(), result.data());
    return result;
  }
};

class Adapters : public ::testing::TestWithParam<NetworkMode> {};

TEST_P(Adapters, EqualDiffusersWithPeft) {
  const NetworkMode mode = GetParam();
  AdaptersOpened o(mode);
  auto expected = testing::read_npz(testing::golden_root() + "/image/flux_lora/io.npz");
  ASSERT_TRUE(expected.ok());
  NetworkAdapters& bank = o.denoiser->adapters();
  for (const char* name : {"first", "second", "makers"}) {
    auto file = AdapterFile::open(adapters_lora(name));
    ASSERT_TRUE(file.ok()) << file.status().message();
    const Status loaded = bank.load(name, file->networks[""], mode == NetworkMode::kInterpreter);
    ASSERT_TRUE(loaded.ok()) << loaded.message();
  }
  using Set = std::vector<std::pair<std::string, double>>;
  const std::vector<std::pair<const char*, Set>> sets = {{"none", {}},
                                                         {"first", {{"first", 1.0}}},
                                                         {"second", {{"second", 0.5}}},
                                                         {"both", {{"first", 0.7}, {"second", -1.2}}},
                                                         {"first", {{"makers", 1.0}}},
                                                         {"none", {}}};
  for (const auto& [name, set] : sets) {
    ASSERT_TRUE(bank.set(set).ok());
    // Rounding to bfloat16 twice more than without adapters.
    EXPECT_LE(testing::relative_error(o.velocity(), expected->at(fmt::format("{}.velocity", name))),
              testing::rounds(mode) ? 4e-2 : 1e-4)
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, Adapters, ::testing::ValuesIn(testing::network_modes()),
                         [](const auto& info) { return testing::network_mode_name(info.param); });

TEST(Adapters, WhatDoesNotFitIsNamed) {
  AdaptersOpened o(NetworkMode::kF32, 6);
  NetworkAdapters& bank = o.denoiser->adapters();
  auto first = AdapterFile::open(adapters_lora("first")), second = AdapterFile::open(adapters_lora("second"));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(second->max_rank, 8);
  EXPECT_THAT(bank.load("second", second->networks[""], false).message(),
              HasSubstr("has rank 8, the engine was opened for 6"));
  ASSERT_TRUE(bank.load("first", first->networks[""], false).ok());
  EXPECT_THAT(bank.load("first", first->networks[""], false).message(),
              HasSubstr("there is an adapter \"first\" already"));
  EXPECT_THAT(bank.set(std::vector<std::pair<std::string, double>>{{"other", 1.0}}).message(),
              HasSubstr("there is no adapter \"other\""));
  EXPECT_THAT(bank.set(std::vector<std::pair<std::string, double>>{{"first", 1.0}, {"first", 1.0}}).message(),
              HasSubstr("rank 8 together"));
  first->networks[""]["transformer_blocks.9.attn.to_q"] = first->networks[""].begin()->second;
  EXPECT_THAT(bank.load("alien", first->networks[""], false).message(),
              HasSubstr("the network has no transformer_blocks.9.attn.to_q; is it a LoRA of this model?"));
  EXPECT_EQ(AdapterFile::open(adapters_lora("none")).status().code(), Code::not_found);
  EXPECT_THAT(AdapterFile::open(testing::golden_root() + "/image/flux_dev/model.safetensors").status().message(),
              HasSubstr("belongs to no LoRA pair"));
}

}  // namespace
}  // namespace redline
