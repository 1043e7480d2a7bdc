// LoRA files beside text encoders; tests/golden/image/make_text_lora.py makes them.
#include <gmock/gmock.h>

#include "diffusion/pipeline_adapters.h"
#include "graph/adapter_sites.h"
#include "models/image/image_models.h"
#include "support/image_builders.h"
#include "support/image_golden.h"

namespace redline {
namespace {

using ::testing::HasSubstr;
using testing::ImageGolden;
using testing::NetworkMode;

/// An encoder with room for adapters, and the run "one" of its case.
struct Encoder {
  ImageGolden golden;
  std::unique_ptr<RuntimeResources> runtime = testing::make_runtime(2);
  NetworkAdapters bank;
  Executable network;
  SymbolValues sizes;

  Encoder(const char* name, NetworkMode mode, int64_t max_rank = 8) : golden(testing::load_image_golden(name)) {
    auto built = std::string_view(name).starts_with("t5") ? testing::build_t5_encoder(golden.checkpoint)
                                                          : testing::build_clip_text(golden.checkpoint);
    EXPECT_TRUE(built.ok()) << built.status().message();
    const auto& ids = golden.find("one", "tokens")->values;
    sizes[Symbol::kBatch] = 1;
    sizes[Symbol::kTextTokens] = static_cast<int64_t>(ids.size());
    bank = NetworkAdapters(add_adapter_sites(built->graph, max_rank, [](const std::string&) { return true; }));
    network = make_network(std::move(built->graph), sizes, mode, *runtime);
  }
  std::vector<float> hidden(size_t count) {
    const auto& ids = golden.find("one", "tokens")->values;
    for (size_t i = 0; i < ids.size(); ++i) {
      network.input_i32("tokens")[i] = static_cast<int32_t>(ids[i]);
      if (network.has_input("positions")) network.input_i32("positions")[i] = static_cast<int32_t>(i);
    }
    if (network.has_input("key_lengths")) network.input_i32("key_lengths")[0] = static_cast<int32_t>(ids.size());
    if (network.has_input("pooled_rows")) network.input_i32("pooled_rows")[0] = 0;
    EXPECT_TRUE(network.run(sizes, bank.segments()).ok());
    return {network.output("hidden"), network.output("hidden") + count};
  }
};

std::string text_adapters_lora(const std::string& name) { return testing::golden_root() + "/image/text_lora/" + name; }

class TextAdapters : public ::testing::TestWithParam<NetworkMode> {};

TEST_P(TextAdapters, EqualTransformersWithPeft) {
  const NetworkMode mode = GetParam();
  auto expected = testing::read_npz(text_adapters_lora("io.npz"));
  ASSERT_TRUE(expected.ok()) << expected.status().message();
  Encoder clip("clip_l", mode), t5("t5_gated", mode);
  PipelineAdapters adapters;
  adapters.add("text_encoder", clip.bank);
  adapters.add("text_encoder_2", t5.bank, "text_encoder_3");
  for (const char* name : {"peft", "kohya"}) {
    auto file = AdapterFile::open(text_adapters_lora(name) + ".safetensors");
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ(file->networks.count(""), 0u);
    EXPECT_EQ(file->networks.size(), 2u);
    const Status loaded = adapters.load(name, *file, mode == NetworkMode::kInterpreter);
    ASSERT_TRUE(loaded.ok()) << loaded.message();
  }
  for (const char* name : {"none", "peft", "kohya", "none"}) {
    std::vector<std::pair<std::string, double>> set;
    if (name != std::string_view("none")) set.emplace_back(name, 1.0);
    ASSERT_TRUE(adapters.set(set).ok());
    for (const auto& [encoder, suffix] : {std::pair{&clip, "clip"}, {&t5, "t5"}}) {
      const testing::NpyArray& want = expected->at(fmt::format("{}.{}", name, suffix));
      // `auto` as for the encoders alone, whose error these products add to.
      EXPECT_LE(testing::relative_error(encoder->hidden(want.values.size()), want), testing::rounds(mode) ? 7e-2 : 1e-4)
          << name << " " << suffix;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, TextAdapters, ::testing::ValuesIn(testing::network_modes()),
                         [](const auto& info) { return testing::network_mode_name(info.param); });

TEST(PipelineAdapters, LoadInAllNetworksOrInNone) {
  Encoder clip("clip_l", NetworkMode::kInterpreter), narrow("t5_gated", NetworkMode::kInterpreter, 3);
  auto peft = AdapterFile::open(text_adapters_lora("peft.safetensors")),
       kohya = AdapterFile::open(text_adapters_lora("kohya.safetensors"));
  ASSERT_TRUE(peft.ok() && kohya.ok());
  PipelineAdapters alone;
  alone.add("text_encoder", clip.bank);
  EXPECT_THAT(alone.load("a", *peft, true).message(), HasSubstr("has a part for text_encoder_2, which this pipeline"));

  PipelineAdapters both;
  both.add("text_encoder", clip.bank);
  both.add("text_encoder_2", narrow.bank, "text_encoder_3");
  const std::string refused = both.load("a", *peft, true).message();
  EXPECT_THAT(refused, HasSubstr("text_encoder_2"));
  EXPECT_THAT(refused, HasSubstr("has rank 4, the engine was opened for 3"));
  EXPECT_EQ(both.set(std::vector<std::pair<std::string, double>>{{"a", 1.0}}).code(), Code::not_found);
  EXPECT_TRUE(both.load("a", *kohya, true).ok()) << "the name was not given back";
  EXPECT_THAT(both.load("a", *kohya, true).message(), HasSubstr("there is an adapter \"a\" already"));
  EXPECT_TRUE(both.set(std::vector<std::pair<std::string, double>>{{"a", 1.0}}).ok());
}

}  // namespace
}  // namespace redline
