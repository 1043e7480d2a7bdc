// The schedules of golden networks on a GPU of 132 multiprocessors, by the static check. Folders of tests/golden are
// enumerated, so that a new network is checked by itself; golden_emu_test.cc does that for language models.
#include "graph/adapter_sites.h"
#include "graph/adapters.h"
#include "support/encoder_golden.h"
#include "support/image_builders.h"
#include "support/image_sizes.h"

namespace redline::testing {
namespace {

SymbolValues schedule_sizes() {
  SymbolValues sizes;
  sizes[Symbol::kBatch] = 2;
  sizes[Symbol::kImageTokens] = 64;
  sizes[Symbol::kTextTokens] = 10;
  set_image_size(sizes, 8, 8);
  return sizes;
}

/// With sites of adapters, as engines compile it that can load them, and without.
void check_both(const Graph& graph) {
  if (graph.ops.empty()) return;
  expect_ordered(graph, schedule_sizes());
  Graph adapted = graph;
  EXPECT_FALSE(add_adapter_sites(adapted, 8, [](const std::string&) { return true; }).empty());
  expect_ordered(std::move(adapted), schedule_sizes());
}

TEST(GoldenSchedules, OfImageNetworksAreOrdered) {
  std::map<std::string, int> checked;  // by class
  for (const auto& entry : std::filesystem::directory_iterator(golden_root() + "/image")) {
    if (!std::filesystem::exists(entry.path() / "config.json") || !std::filesystem::exists(entry.path() / "io.npz"))
      continue;
    SCOPED_TRACE(entry.path().filename().string());
    auto checkpoint = Checkpoint::open(entry.path().string());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    const nlohmann::json& config = checkpoint->config;
    const std::string name = config.contains("_class_name") ? config["_class_name"] : config["architectures"][0];
    ++checked[name];
    if (find_denoiser(name).ok()) {
      for (const BlockSplit blocks : {BlockSplit(0), BlockSplit(1)}) {
        const auto model = build_denoiser(name, *checkpoint, blocks);
        ASSERT_TRUE(model.ok()) << model.status().message();
        check_both(model->front);
        check_both(model->middle);
        check_both(model->tail);
      }
    } else if (find_autoencoder(name).ok()) {
      const auto model = build_autoencoder(name, *checkpoint);
      ASSERT_TRUE(model.ok()) << model.status().message();
      expect_ordered(model->decode, schedule_sizes());
      expect_ordered(model->encode, schedule_sizes());
    } else {
      const auto model = build_text_encoder(name, *checkpoint);
      ASSERT_TRUE(model.ok()) << model.status().message();
      check_both(model->graph);
    }
  }
  for (const char* name :
       {"FluxTransformer2DModel", "SD3Transformer2DModel", "PixArtTransformer2DModel", "UNet2DConditionModel",
        "AutoencoderKL", "AutoencoderTiny", "CLIPTextModel", "CLIPTextModelWithProjection", "T5EncoderModel"})
    EXPECT_GE(checked[name], 1) << name;
}

TEST(GoldenSchedules, OfEncodersAreOrdered) {
  int checked = 0;
  for (const std::string& name : encoder_models()) {
    if (name.find('/') != std::string::npos) continue;  // GGUF twins have the same graphs
    SCOPED_TRACE(name);
    auto checkpoint = Checkpoint::open(encoder_root() + "/" + name);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    const EncoderFamily* family = find_encoder_family(*checkpoint);
    ASSERT_TRUE(family);
    auto model = family->build(*checkpoint);
    ASSERT_TRUE(model.ok()) << model.status().message();
    SymbolValues sizes;
    sizes[Symbol::kTokens] = 40;
    sizes[Symbol::kSequences] = 5;
    expect_ordered(std::move(model->graph), sizes);
    if (model->head) expect_ordered(std::move(*model->head), sizes);
    ++checked;
  }
  EXPECT_GE(checked, 9);
}

}  // namespace
}  // namespace redline::testing
