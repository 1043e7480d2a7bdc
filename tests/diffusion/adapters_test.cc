#include "diffusion/adapters.h"

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

std::string adapters_lora(const char* name) {
  return fmt::format("{}/image/flux_lora/{}.safetensors", testing::golden_root(), name);
}

/// The transformer of flux_dev with room for adapters, and its run "one" begun.
struct AdaptersOpened {
  std::unique_ptr<RuntimeResources> runtime = testing::make_runtime(2);
  ImageGolden golden = testing::load_image_golden("flux_dev");
  std::unique_ptr<Denoiser> denoiser;

  explicit AdaptersOpened(NetworkMode mode, int64_t max_rank = 16, DType type = DType::kBF16) {
    const auto& sizes = golden.find("one", "sizes")->values;
    ExecutableOptions options = testing::network_options(mode);
    options.bounds[Symbol::kBatch] = 2;
    options.bounds[Symbol::kImageTokens] = 20;
    options.bounds[Symbol::kTextTokens] = 10;
    testing::set_image_size(options.bounds, 16, 16);
    auto model = testing::build_flux(golden.checkpoint, 1);
    EXPECT_TRUE(model.ok());
    auto made = Denoiser::make(std::move(model).value(), options, max_rank, *runtime);
    EXPECT_TRUE(made.ok()) << made.status().message();
    denoiser = std::move(made).value();
    DenoiserBatch batch;
    batch.images = batch.rows = 1;
    batch.latents = {.channels = 4,
                     .height = 2 * static_cast<int64_t>(sizes[1]),
                     .width = 2 * static_cast<int64_t>(sizes[2]),
                     .patch = 2};
    batch.text_tokens = static_cast<int64_t>(sizes[3]);
    for (const char* name : {"text", "pooled", "guidance"}) {
      const auto& values = golden.find("one", name)->values;
      batch.conditions[name].assign(values.begin(), values.end());
    }
    EXPECT_TRUE(denoiser->begin(std::move(batch)).ok());
  }

  std::vector<float> velocity() {
    const auto& rows = golden.find("one", "latents")->values;
    const std::vector<float> x(rows.begin(), rows.end());
    std::vector<float> out(x.size());
    const int64_t row[] = {0};
    EXPECT_TRUE(denoiser->evaluate(row, x, 750, out).ok());
    return out;
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

/// A file of pairs of the given ranks for modules of 4 inputs and 4 outputs, all values 1.
testing::SafetensorsFile adapters_pairs(const std::map<std::string, int64_t>& ranks) {
  testing::SafetensorsFile file;
  for (const auto& [module, rank] : ranks) {
    const std::vector<float> ones(static_cast<size_t>(4 * rank), 1.0f);
    file.add(module + ".lora_A.weight", "F32", {rank, 4}, ones.data(), ones.size() * 4);
    file.add(module + ".lora_B.weight", "F32", {4, rank}, ones.data(), ones.size() * 4);
  }
  return file;
}

Result<AdapterFile> adapters_opened(const testing::SafetensorsFile& file) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/lora.safetensors";
  file.write(path);
  return AdapterFile::open(path);
}

TEST(AdapterScale, OfLoraAdapterMetadata) {
  testing::SafetensorsFile file = adapters_pairs({{"unet.down.attn1.to_q", 4},
                                                  {"unet.down.attn1.to_k", 4},
                                                  {"unet.down.attn1.to_v", 2},
                                                  {"unet.up.to_out.0", 4},
                                                  {"text_encoder.text_model.encoder.layers.0.self_attn.q_proj", 4},
                                                  {"text_encoder_2.encoder.layers.0.self_attn.q_proj", 4},
                                                  {"text_encoder_3.block.q", 4}});
  const float alpha = 3;
  file.add("unet.up.to_out.0.alpha", "F32", {}, &alpha, 4);
  const nlohmann::json metadata = {
      {"unet.r", 4},
      {"unet.lora_alpha", 8},
      {"unet.rank_pattern", {{"attn1.to_v", 2}}},
      {"unet.alpha_pattern", {{"down.attn1.to_k", 2}}},
      {"text_encoder.r", 4},
      {"text_encoder.lora_alpha", 4},
      {"text_encoder.alpha_pattern", {{"text_model.encoder.layers.0.self_attn.q_proj", 6}}},
      {"text_encoder_2.r", 4},
      {"text_encoder_2.lora_alpha", 8},
      {"text_encoder_2.use_rslora", true}};
  file.header["__metadata__"] = {{"format", "pt"}, {"lora_adapter_metadata", metadata.dump()}};
  const auto opened = adapters_opened(file);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const auto scale = [&](const char* component, const char* module) {
    return opened->networks.at(component).at(module).scale;
  };
  EXPECT_EQ(scale("", "down.attn1.to_q"), 2);    // lora_alpha / r
  EXPECT_EQ(scale("", "down.attn1.to_k"), 0.5);  // alpha_pattern / r
  EXPECT_EQ(scale("", "down.attn1.to_v"), 4);    // lora_alpha / rank_pattern
  EXPECT_EQ(scale("", "up.to_out.0"), 0.75);     // its alpha tensor / r
  EXPECT_EQ(scale("text_encoder", "encoder.layers.0.self_attn.q_proj"), 1.5);
  EXPECT_EQ(scale("text_encoder_2", "encoder.layers.0.self_attn.q_proj"), 4);  // lora_alpha / sqrt(r)
  EXPECT_EQ(scale("text_encoder_3", "block.q"), 1);                            // the metadata states nothing of it
}

TEST(AdapterScale, OfMixedRanksWithoutAlphaIsOne) {
  const auto opened = adapters_opened(adapters_pairs({{"unet.a.to_q", 2}, {"unet.b.to_q", 4}}));
  ASSERT_TRUE(opened.ok());
  for (const auto& [module, matrix] : opened->networks.at("")) EXPECT_EQ(matrix.scale, 1) << module;
}

TEST(AdapterScale, MetadataThatContradictsTheTensorsIsNamed) {
  testing::SafetensorsFile file = adapters_pairs({{"unet.a.to_q", 2}});
  file.header["__metadata__"] = {{"lora_adapter_metadata", R"({"unet.r": 4, "unet.lora_alpha": 4})"}};
  EXPECT_THAT(adapters_opened(file).status().message(), HasSubstr("a.to_q has rank 2, lora_adapter_metadata has 4"));
  file.header["__metadata__"] = {{"lora_adapter_metadata", R"({"unet.r": "many"})"}};
  EXPECT_THAT(adapters_opened(file).status().message(), HasSubstr("lora_adapter_metadata: "));
  file.header["__metadata__"] = {{"lora_adapter_metadata", "not JSON"}};
  EXPECT_EQ(adapters_opened(file).status().code(), Code::invalid_argument);
}

TEST(AdapterNames, PrefixesOfOtherProgramsAndNamedAdapters) {
  testing::SafetensorsFile file = adapters_pairs(
      {{"model.diffusion_model.a.to_q", 1}, {"text_encoders.clip_l.transformer.text_model.b.q_proj", 1}});
  const std::vector<float> ones(4, 1.0f);
  file.add("unet.c.lora_A.style.weight", "F32", {1, 4}, ones.data(), 16);
  file.add("unet.c.lora_B.style.weight", "F32", {4, 1}, ones.data(), 16);
  // The names differ: two adapters in one file.
  EXPECT_THAT(adapters_opened(file).status().message(), HasSubstr("it holds the adapters"));
  for (const char* factor : {"A", "B"})
    file.rename(fmt::format("unet.c.lora_{}.style.weight", factor), fmt::format("unet.c.lora_{}.weight", factor));
  const auto opened = adapters_opened(file);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_TRUE(opened->networks.at("").contains("a.to_q"));
  EXPECT_TRUE(opened->networks.at("").contains("c"));
  EXPECT_TRUE(opened->networks.at("text_encoder").contains("b.q_proj"));
  EXPECT_EQ(adapters_opened(adapters_pairs({{"unet.a.to_q", 1}}))->max_rank, 1);
}

/// up down of a pair, row by row.
std::vector<float> adapters_product(const AdapterMatrix& m) {
  const auto values = [](const TensorView& view) {
    std::vector<float> v(static_cast<size_t>(view.num_elements()));
    unpack_row(view.dtype, view.data, v.data(), view.num_elements());
    return v;
  };
  const std::vector<float> down = values(m.down), up = values(m.up);
  const int64_t rank = m.rank(), cols = m.down.shape[1], rows = m.up.shape[0];
  std::vector<float> product;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) {
      double sum = 0;
      for (int64_t k = 0; k < rank; ++k)
        sum += static_cast<double>(up[static_cast<size_t>(r * rank + k)]) *
               static_cast<double>(down[static_cast<size_t>(k * cols + c)]);
      product.push_back(static_cast<float>(sum * m.scale));
    }
  return product;
}

TEST(AdapterForms, LoHaIsAnElementwiseProduct) {
  // (A B) * (C D) with whole numbers: exact in float32.
  const float a[] = {1, 2, 0, 1, -1, 3}, b[] = {2, 1, 1, 0}, c[] = {1, 0, 2, 1, 0, 1}, d[] = {3, 1, 1, 2}, alpha = 1;
  testing::SafetensorsFile file;
  file.add("lora_unet_m.hada_w1_a", "F32", {3, 2}, a, sizeof a);
  file.add("lora_unet_m.hada_w1_b", "F32", {2, 2}, b, sizeof b);
  file.add("lora_unet_m.hada_w2_a", "F32", {3, 2}, c, sizeof c);
  file.add("lora_unet_m.hada_w2_b", "F32", {2, 2}, d, sizeof d);
  file.add("lora_unet_m.alpha", "F32", {}, &alpha, sizeof alpha);
  const auto opened = adapters_opened(file);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  // A B = {4 1, 1 0, 1 -1}; C D = {3 1, 7 4, 1 2}; alpha / r = 1 / 2.
  EXPECT_EQ(adapters_product(opened->networks.at("").at("m")), (std::vector<float>{6, 0.5, 3.5, 0, 0.5, -1}));
  EXPECT_EQ(opened->max_rank, 4);
}

TEST(AdapterForms, LoKrIsAKroneckerProduct) {
  const float w1[] = {1, 2, 3, 4}, w2[] = {1, 0, 2, 0, 1, 1}, alpha = 8;
  testing::SafetensorsFile file;
  file.add("lycoris_m.lokr_w1", "F32", {2, 2}, w1, sizeof w1);
  file.add("lycoris_m.lokr_w2", "F32", {2, 3}, w2, sizeof w2);
  file.add("lycoris_m.alpha", "F32", {}, &alpha, sizeof alpha);  // without factors of a rank it does not count
  const auto opened = adapters_opened(file);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_EQ(adapters_product(opened->networks.at("").at("m")),
            (std::vector<float>{1, 0, 2, 2, 0, 4, 0, 1, 1, 0, 2, 2, 3, 0, 6, 4, 0, 8, 0, 3, 3, 0, 4, 4}));
  // w2 as a product of rank 1: alpha counts.
  const float w2a[] = {1, 2}, w2b[] = {1, 0, 2};
  testing::SafetensorsFile factored;
  factored.add("lycoris_m.lokr_w1", "F32", {2, 2}, w1, sizeof w1);
  factored.add("lycoris_m.lokr_w2_a", "F32", {2, 1}, w2a, sizeof w2a);
  factored.add("lycoris_m.lokr_w2_b", "F32", {1, 3}, w2b, sizeof w2b);
  factored.add("lycoris_m.alpha", "F32", {}, &alpha, sizeof alpha);
  const auto second = adapters_opened(factored);
  ASSERT_TRUE(second.ok()) << second.status().message();
  EXPECT_EQ(
      adapters_product(second->networks.at("").at("m")),
      (std::vector<float>{8, 0, 16, 16, 0, 32, 16, 0, 32, 32, 0, 64, 24, 0, 48, 32, 0, 64, 48, 0, 96, 64, 0, 128}));
}

TEST(AdapterForms, WhatIsMoreThanFactorsIsRefusedByName) {
  for (const auto& [tensor, words] : {std::pair{"lora_unet_m.w_norm", "trained norms are not supported"},
                                      {"lora_unet_m.norm.diff", "differences of norms are not supported"},
                                      {"unet.m.lora_A.bias", "biases of the first factor"}}) {
    testing::SafetensorsFile file = adapters_pairs({{"unet.m", 1}});
    const float one = 1;
    file.add(tensor, "F32", {1}, &one, sizeof one);
    EXPECT_THAT(adapters_opened(file).status().message(), HasSubstr(words)) << tensor;
  }
}

TEST(AdapterNames, OriginalNamesOfFluxAndXlabsEqualThoseOfDiffusers) {
  // A block's three matrices of rank 1 stand in one of the original names, and the last modulation begins with shift.
  AdaptersOpened o(NetworkMode::kF32, 4);
  NetworkAdapters& bank = o.denoiser->adapters();
  const auto value = [](size_t i) { return static_cast<float>(i % 7) * 0.25f - 0.5f; };
  std::vector<float> down, up;
  const auto file_of = [&](const std::vector<std::tuple<std::string, int64_t, int64_t, int64_t>>& parts,
                           const char* down_suffix, const char* up_suffix) {
    // name, rows, columns, row at which it begins
    testing::SafetensorsFile file;
    for (const auto& [name, rows, cols, first] : parts) {
      down.resize(static_cast<size_t>(cols));
      up.resize(static_cast<size_t>(rows));
      for (size_t i = 0; i < down.size(); ++i) down[i] = value(i + 3);
      for (size_t i = 0; i < up.size(); ++i) up[i] = value(i + static_cast<size_t>(first));
      file.add(name + down_suffix, "F32", {1, cols}, down.data(), down.size() * 4);
      file.add(name + up_suffix, "F32", {rows, 1}, up.data(), up.size() * 4);
    }
    return file;
  };
  const int64_t width = o.golden.checkpoint.tensors.at("x_embedder.weight").view.shape[0];
  const std::string attention = "transformer_blocks.0.attn.";
  const auto diffusers = file_of({{attention + "to_q", width, width, 0},
                                  {attention + "to_k", width, width, width},
                                  {attention + "to_v", width, width, 2 * width}},
                                 ".lora_A.weight", ".lora_B.weight");
  const auto original =
      file_of({{"double_blocks.0.img_attn.qkv", 3 * width, width, 0}}, ".lora_A.weight", ".lora_B.weight");
  const auto kohya = file_of({{"lora_unet_double_blocks_0_img_attn_qkv", 3 * width, width, 0}}, ".lora_down.weight",
                             ".lora_up.weight");
  const auto xlabs =
      file_of({{"double_blocks.0.processor.qkv_lora1", 3 * width, width, 0}}, ".down.weight", ".up.weight");
  std::vector<std::vector<float>> outputs;
  const auto run = [&](const testing::SafetensorsFile& file, const std::string& name) {
    const testing::TemporaryFolder folder;
    file.write(folder.path() + "/lora.safetensors");
    const auto opened = AdapterFile::open(folder.path() + "/lora.safetensors");
    ASSERT_TRUE(opened.ok()) << name << ": " << opened.status().message();
    const Status loaded = bank.load(name, opened->networks.at(""), false);
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    ASSERT_TRUE(bank.set(std::vector<std::pair<std::string, double>>{{name, 1.0}}).ok());
    outputs.push_back(o.velocity());
  };
  ASSERT_TRUE(bank.set({}).ok());
  const std::vector<float> plain = o.velocity();
  run(diffusers, "diffusers");
  run(original, "original");
  run(kohya, "kohya");
  run(xlabs, "xlabs");
  ASSERT_EQ(outputs.size(), 4u);
  EXPECT_NE(outputs[0], plain);
  for (size_t i = 1; i < outputs.size(); ++i) EXPECT_EQ(outputs[i], outputs[0]) << i;
  // scale and shift of diffusers are shift and scale of the original.
  outputs.clear();
  auto halves = file_of({{"norm_out.linear", 2 * width, width, 0}}, ".lora_A.weight", ".lora_B.weight");
  auto swapped = file_of({{"final_layer.adaLN_modulation.1", 2 * width, width, 0}}, ".lora_A.weight", ".lora_B.weight");
  const size_t at = swapped.header["final_layer.adaLN_modulation.1.lora_B.weight"]["data_offsets"][0];
  std::rotate(swapped.data.begin() + static_cast<std::ptrdiff_t>(at),
              swapped.data.begin() + static_cast<std::ptrdiff_t>(at + static_cast<size_t>(width) * 4),
              swapped.data.begin() + static_cast<std::ptrdiff_t>(at + static_cast<size_t>(2 * width) * 4));
  run(halves, "halves");
  run(swapped, "swapped");
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_NE(outputs[0], plain);
  EXPECT_EQ(outputs[0], outputs[1]);
}

}  // namespace
}  // namespace redline
