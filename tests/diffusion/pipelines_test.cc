// Whole pipelines of each family on tiny random weights: what diffusers draws from the same prompt and noise.
// tests/golden/image/make_pipelines.py makes them.
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "models/image/image_models.h"
#include "redline/image.h"
#include "support/image_builders.h"
#include "support/image_golden.h"
#include "support/image_sizes.h"
#include "support/npz.h"
#include "support/temporary_folder.h"
#include "support/torch_archive.h"

namespace redline {
namespace {

struct Mode {
  const char* pipeline;
  Precision type;
  std::string device = "cpu";
};

class Pipelines : public ::testing::TestWithParam<Mode> {};

TEST_P(Pipelines, DrawWhatDiffusersDraws) {
  const std::string folder = fmt::format("{}/image/{}", testing::golden_root(), GetParam().pipeline);
  auto arrays = testing::read_npz(folder + "/io.npz");
  ASSERT_TRUE(arrays.ok()) << arrays.status().message();
  ImageOptions options;
  options.threads = 2;
  options.max_side = 64;
  options.dtype = GetParam().type;
  options.device = GetParam().device;
  auto engine = ImageEngine::open(folder, options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  for (const auto& [name, sizes] : *arrays) {
    if (!name.ends_with(".sizes")) continue;
    const std::string run = name.substr(0, name.size() - 6);
    const auto has = [&](const char* what) { return arrays->count(fmt::format("{}.{}", run, what)) > 0; };
    const auto find = [&](const char* what) -> const testing::NpyArray& {
      return arrays->at(fmt::format("{}.{}", run, what));
    };
    const auto image_of = [&](const char* what) {
      const testing::NpyArray& pixels = find(what);
      return RgbImage{pixels.shape[1], pixels.shape[0], {pixels.values.begin(), pixels.values.end()}};
    };
    FloatArray noise;
    RgbImage init, mask;
    ImageRequest request = (*engine)->defaults();
    for (const char* prompt : {"a large red circle on a blue background", "two small stars"})
      request.prompts.emplace_back(prompt);
    request.negative_prompt = run == "empty" ? "" : "a house";
    request.width = static_cast<int64_t>(sizes.values[0]);
    request.height = static_cast<int64_t>(sizes.values[1]);
    request.guidance_scale = find("guidance").values[0];
    request.num_inference_steps = 4;
    request.max_sequence_length = 24;
    if (has("noise")) {
      noise = {find("noise").shape, {find("noise").values.begin(), find("noise").values.end()}};
      request.init_noise = std::make_shared<FloatArray>(noise);
    } else {
      request.seed = static_cast<uint64_t>(find("seed").values[0]);
      request.strength = find("strength").values[0];
      init = image_of("init");
      request.init_image = std::make_shared<RgbImage>(init);
    }
    if (has("mask")) {
      mask = image_of("mask");
      request.mask = std::make_shared<RgbImage>(mask);
    }
    request.keep_latents = true;
    auto result = (*engine)->generate(request);
    ASSERT_TRUE(result.ok()) << run << ": " << result.status().message();
    const bool exact = GetParam().type == Precision::kF32;
    const auto& latents = find("latents").values;
    ASSERT_EQ(result->latents.data.size(), latents.size());
    double error = 0, size = 0;
    for (size_t i = 0; i < latents.size(); ++i) {
      error += std::pow(static_cast<double>(result->latents.data[i]) - latents[i], 2);
      size += std::pow(latents[i], 2);
    }
    // Both sides round to float32, and guidance multiplies the difference of two branches by four at each of four
    // steps; or rounding to 8 bits of mantissa, some ten products a step in a row, with guidance up to 5.
    const double most = std::string_view(GetParam().pipeline).starts_with("pipeline_sd3") ? 1e-3 : 1e-4;
    EXPECT_LE(std::sqrt(error / size), exact ? most : 8e-2) << run;
    const auto& expected = find("image").values;
    const size_t pixels = expected.size() / 2;
    double squares = 0;
    for (size_t i = 0; i < expected.size(); ++i)
      squares += std::pow(static_cast<double>(result->images.at(i / pixels).rgb.at(i % pixels)) - expected[i], 2);
    const double psnr = 10 * std::log10(255.0 * 255.0 * static_cast<double>(expected.size()) / std::max(squares, 1e-9));
    // The decoders of these models turn a relative error e of the latents into at least 8 - 20 log10(e) dB: 30 at the
    // bound above.
    EXPECT_GE(psnr, exact ? 50 : 30) << run;
  }
}

/// A copy of a golden pipeline in which something can be changed.
struct Changed {
  testing::TemporaryFolder folder;
  std::string path = folder.path() + "/pipeline";

  explicit Changed(const std::string& pipeline) {
    const std::string from = testing::golden_root() + "/image/" + pipeline;
    std::filesystem::copy(from, path, std::filesystem::copy_options::recursive);
  }
  void edit(const std::string& file, const std::function<void(nlohmann::json&)>& change) const {
    nlohmann::json json = nlohmann::json::parse(std::ifstream(path + "/" + file));
    change(json);
    std::ofstream(path + "/" + file) << json.dump();
  }
  std::string error() const {
    ImageOptions options;
    options.threads = 1;
    options.max_side = 64;
    const auto engine = ImageEngine::open(path, options);
    if (!engine.ok()) return engine.status().message();
    ImageRequest request = (*engine)->defaults();
    request.prompts = {"a star"};
    request.num_inference_steps = 1;
    const auto result = (*engine)->generate(request);
    return result.ok() ? "" : result.status().message();
  }
};

TEST(UnetPipelines, RecommendTheSizeOfTheirTraining) {
  const Changed sd("pipeline_sd1");
  const auto engine = ImageEngine::open(sd.path);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  EXPECT_EQ((*engine)->defaults().width, 16);  // 8 pixels of the latent
  EXPECT_EQ((*engine)->defaults().guidance_scale, 7.5);
}

TEST(UnetPipelines, ATinyAutoencoderStandsInForTheirOwn) {
  ImageOptions options;
  options.threads = 1;
  options.max_side = 64;
  options.dtype = Precision::kF32;
  const std::string root = testing::golden_root() + "/image/";
  options.vae_folder = root + "tiny_sd";
  const auto engine = ImageEngine::open(root + "pipeline_sd1", options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  ImageRequest request = (*engine)->defaults();
  request.prompts = {"a star"};
  request.num_inference_steps = 1;
  request.width = 24;
  request.height = 16;
  request.keep_latents = true;
  const auto result = (*engine)->generate(request);
  ASSERT_TRUE(result.ok()) << result.status().message();

  const auto checkpoint = Checkpoint::open(options.vae_folder);
  ASSERT_TRUE(checkpoint.ok());
  auto model = testing::build_autoencoder_tiny(*checkpoint);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const int64_t height = request.height / model->scale, width = request.width / model->scale;
  SymbolValues sizes;
  sizes[Symbol::kBatch] = 1;
  testing::set_image_size(sizes, height, width);
  const auto runtime = testing::make_runtime(1);
  Executable decode = testing::make_network(std::move(model->decode), sizes, testing::NetworkMode::kF32, *runtime);
  const FloatArray& latents = result->latents;
  ASSERT_EQ(latents.shape, (std::vector<int64_t>{1, 4, height, width}));
  for (int64_t i = 0; i < height * width; ++i)
    for (int64_t c = 0; c < 4; ++c)
      decode.input("latents")[i * 4 + c] = latents.data[static_cast<size_t>(c * height * width + i)];
  ASSERT_TRUE(decode.run(sizes).ok());
  const float* picture = decode.output("image");
  for (size_t i = 0; i < result->images.at(0).rgb.size(); ++i) {
    const float value = std::clamp(picture[i] * 0.5f + 0.5f, 0.0f, 1.0f) * 255.0f;
    EXPECT_NEAR(result->images[0].rgb[i], value, 0.51) << i;  // rounded to whole numbers
  }
  options.vae_folder = root + "tiny";
  EXPECT_THAT(ImageEngine::open(root + "pipeline_sd1", options).status().message(),
              ::testing::HasSubstr("the vae has 5 latent channels, the unet 4"));
  options.vae_folder = root + "flux_dev";
  EXPECT_THAT(ImageEngine::open(root + "pipeline_sd1", options).status().message(),
              ::testing::HasSubstr("Redline has AutoencoderKL, AutoencoderTiny"));
}

/// The latents of one step of a pipeline.
std::vector<float> latents_of_folder(const std::string& path) {
  ImageOptions options;
  options.threads = 1;
  options.max_side = 64;
  options.dtype = Precision::kF32;
  const auto engine = ImageEngine::open(path, options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  if (!engine.ok()) return {};
  ImageRequest request = (*engine)->defaults();
  request.prompts = {"a star"};
  request.num_inference_steps = 2;
  request.width = request.height = 16;
  request.keep_latents = true;
  const auto result = (*engine)->generate(request);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? result->latents.data : std::vector<float>();
}

TEST(UnetPipelines, FoldersOfPyTorchFilesEqualThoseOfSafetensors) {
  const Changed c("pipeline_sd1");
  const std::vector<float> expected = latents_of_folder(c.path);
  for (const auto& [component, file] : {std::pair{"unet", "diffusion_pytorch_model.bin"},
                                        {"vae", "diffusion_pytorch_model.bin"},
                                        {"text_encoder", "pytorch_model.bin"}}) {
    const std::string folder = c.path + "/" + component;
    std::string bytes;
    {
      const auto checkpoint = Checkpoint::open(folder);
      ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
      std::vector<testing::TorchArchiveTensor> tensors;
      for (const auto& [name, source] : checkpoint->tensors) {
        ASSERT_EQ(source.view.dtype, DType::kBF16);
        tensors.push_back(
            {name, "BFloat16Storage", source.view.shape,
             std::string(static_cast<const char*>(source.view.data), static_cast<size_t>(source.view.bytes()))});
      }
      // Versions of transformers before 4.31 saved it.
      if (component == std::string("text_encoder"))
        tensors.push_back({"text_model.embeddings.position_ids", "LongStorage", {1, 2}, std::string(16, '\0')});
      bytes = testing::torch_archive(tensors);
    }
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().filename() != "config.json") std::filesystem::remove(entry.path());
    std::ofstream(folder + "/" + file, std::ios::binary) << bytes;
  }
  EXPECT_EQ(latents_of_folder(c.path), expected);
  // Both names of an index, and what is missing is named.
  std::filesystem::rename(c.path + "/unet/diffusion_pytorch_model.bin", c.path + "/unet/part-1.bin");
  std::ofstream(c.path + "/unet/diffusion_pytorch_model.bin.index.json")
      << R"({"metadata": {}, "weight_map": {"conv_in.bias": "part-1.bin"}})";
  EXPECT_EQ(latents_of_folder(c.path), expected);
  std::filesystem::remove(c.path + "/unet/part-1.bin");
  EXPECT_THAT(ImageEngine::open(c.path).status().message(),
              ::testing::HasSubstr("part-1.bin is missing, which diffusion_pytorch_model.bin.index.json names"));
}

TEST(UnetPipelines, MissingMaskRegeneratesAll) {
  const Changed c("pipeline_sd_inpaint");
  ImageOptions options;
  options.threads = 1;
  options.max_side = 64;
  const auto engine = ImageEngine::open(c.path, options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  ImageRequest request = (*engine)->defaults();
  EXPECT_EQ(request.strength, 1);
  request.prompts = {"a star"};
  request.num_inference_steps = 2;
  request.width = request.height = 16;
  const auto plain = (*engine)->generate(request);
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_THAT(plain->warnings, ::testing::Contains(::testing::HasSubstr("without a mask it regenerates")));
  // A mask that is white all over gives the same image, whatever image it covers.
  const RgbImage white = {16, 16, std::vector<uint8_t>(16 * 16 * 3, 255)};
  const RgbImage picture = {16, 16, std::vector<uint8_t>(16 * 16 * 3, 30)};
  request.init_image = std::make_shared<RgbImage>(picture);
  request.mask = std::make_shared<RgbImage>(white);
  const auto masked = (*engine)->generate(request);
  ASSERT_TRUE(masked.ok()) << masked.status().message();
  EXPECT_EQ(plain->images[0].rgb, masked->images[0].rgb);
  request.init_image = nullptr;
  EXPECT_THAT((*engine)->generate(request).status().message(), ::testing::HasSubstr("needs the image"));
}

// Noise of the steps, of the VAE and of the masked image, each from the generator of its image.
TEST(UnetPipelines, AnImageOfABatchIsThatOfItsSeedAlone) {
  for (const char* pipeline : {"pipeline_sd1", "pipeline_sd_inpaint"}) {
    const Changed c(pipeline);
    ImageOptions options;
    options.threads = 1;
    options.max_side = 64;
    options.dtype = Precision::kF32;
    const auto engine = ImageEngine::open(c.path, options);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    const RgbImage image = {16, 16, std::vector<uint8_t>(16 * 16 * 3, 90)};
    RgbImage mask = image;
    for (size_t i = 0; i < mask.rgb.size() / 2; ++i) mask.rgb[i] = 255;
    ImageRequest request = (*engine)->defaults();
    request.prompts = {"a star"};
    request.num_inference_steps = 3;
    request.width = request.height = 16;
    request.init_image = std::make_shared<RgbImage>(image);
    request.mask = std::make_shared<RgbImage>(mask);
    request.strength = 0.9;
    request.solver = "euler-ancestral-karras";
    request.seed_each = true;
    request.seed = 8;
    request.batch = 2;
    const auto both = (*engine)->generate(request);
    ASSERT_TRUE(both.ok()) << both.status().message();
    request.batch = 1;
    request.seed = 9;
    const auto alone = (*engine)->generate(request);
    ASSERT_TRUE(alone.ok());
    EXPECT_EQ(both->images[1].rgb, alone->images[0].rgb) << pipeline;
    EXPECT_EQ(alone->solver, "euler-ancestral-karras");
  }
}

TEST(UnetPipelines, NameWhatDoesNotFit) {
  using ::testing::HasSubstr;
  EXPECT_EQ(Changed("pipeline_sdxl").error(), "");
  {
    const Changed c("pipeline_sdxl");
    c.edit("model_index.json", [](auto& j) { j["text_encoder_2"] = {nullptr, nullptr}; });
    EXPECT_THAT(c.error(), HasSubstr("the pipeline has no text_encoder_2"));
  }
  {
    const Changed c("pipeline_sdxl");
    c.edit("model_index.json", [](auto& j) { j["_class_name"] = "StableDiffusionPipeline"; });
    EXPECT_THAT(c.error(), HasSubstr("its pipeline is StableDiffusionXLPipeline"));
  }
  {
    const Changed c("pipeline_sd1");
    c.edit("model_index.json", [](auto& j) { j["_class_name"] = "StableDiffusionXLPipeline"; });
    EXPECT_THAT(c.error(), HasSubstr("the unet takes 0 sizes and scores; that of SDXL takes 6"));
  }
  {
    const Changed c("pipeline_sd1");
    c.edit("model_index.json", [](auto& j) { j.erase("unet"); });
    EXPECT_THAT(c.error(), HasSubstr("names no unet"));
  }
  {
    const Changed c("pipeline_sd1");
    std::filesystem::remove_all(c.path + "/vae");
    EXPECT_THAT(c.error(), HasSubstr("vae is missing: model_index.json names it"));
  }
  {
    const Changed c("pipeline_sd1");
    c.edit("unet/config.json", [](auto& j) { j["cross_attention_dim"] = 16; });
    EXPECT_THAT(c.error(), HasSubstr("attn2.to_k.weight is [4, 12], the config requires [4, 16]"));
  }
  {
    // The encoder of another model.
    const Changed c("pipeline_sd1");
    std::filesystem::remove_all(c.path + "/text_encoder");
    std::filesystem::copy(testing::golden_root() + "/image/pipeline_sdxl/text_encoder", c.path + "/text_encoder");
    EXPECT_THAT(c.error(), HasSubstr("text_encoder gives 8 columns, the unet takes 12"));
  }
  {
    // Inpainting networks also get the mask and the masked latents.
    const Changed c("pipeline_sd_inpaint");
    c.edit("unet/config.json", [](auto& j) { j["out_channels"] = 3; });
    EXPECT_THAT(c.error(), HasSubstr("conv_out.weight is [4, 4, 3, 3], the config requires [3, 4, 3, 3]"));
  }
}

std::vector<Mode> modes() {
  std::vector<Mode> all;
  for (const char* pipeline : {"pipeline_sd3", "pipeline_sd3_without_t5", "pipeline_pixart", "pipeline_sd1",
                               "pipeline_sd2", "pipeline_sd_inpaint", "pipeline_sdxl", "pipeline_sdxl_inpaint"}) {
    for (const Precision type : {Precision::kF32, Precision::kAuto, Precision::kBF16, Precision::kQ8})
      all.push_back({pipeline, type});
    if (std::getenv("REDLINE_CPU_ISA")) continue;
    for (const Precision type : {Precision::kF32, Precision::kBF16})
      all.push_back({pipeline, type, test::test_device()});
    if (std::string_view(pipeline) == "pipeline_sd2" || std::string_view(pipeline) == "pipeline_sd3")
      for (const Precision type : {Precision::kQ8_0, Precision::kW8A8})
        all.push_back({pipeline, type, test::test_device()});
  }
  return all;
}

/// The parts of generate() one by one: embeddings of the prompts, latents without images, images of the latents.
class PipelineParts : public ::testing::TestWithParam<const char*> {};

TEST_P(PipelineParts, GiveWhatTheWholeGives) {
  ImageOptions options;
  options.threads = 2;
  options.max_side = 64;
  options.dtype = Precision::kF32;
  const auto engine = ImageEngine::open(fmt::format("{}/image/{}", testing::golden_root(), GetParam()), options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  ImageRequest whole = (*engine)->defaults();
  whole.prompts = {"two small stars"};
  whole.negative_prompt = "a house";
  whole.num_inference_steps = 2;
  whole.max_sequence_length = 24;
  whole.width = whole.height = 32;
  whole.keep_latents = true;
  const auto expected = (*engine)->generate(whole);
  ASSERT_TRUE(expected.ok()) << expected.status().message();

  const auto positive = (*engine)->encode_prompts(whole.prompts, 24);
  const auto negative = (*engine)->encode_prompts({whole.negative_prompt}, 24);
  ASSERT_TRUE(positive.ok() && negative.ok()) << positive.status().message();
  ASSERT_EQ(positive->text.shape.size(), 3u);
  EXPECT_EQ(static_cast<int64_t>(positive->text.data.size()),
            positive->text.shape[0] * positive->text.shape[1] * positive->text.shape[2]);
  ImageRequest parts = whole;
  parts.prompts.clear();
  parts.negative_prompt.clear();
  parts.prompt_embeds = std::make_shared<FloatArray>(positive->text);
  parts.negative_prompt_embeds = std::make_shared<FloatArray>(negative->text);
  if (!positive->pooled.shape.empty()) {
    parts.pooled_embeds = std::make_shared<FloatArray>(positive->pooled);
    parts.negative_pooled_embeds = std::make_shared<FloatArray>(negative->pooled);
  }
  parts.skip_decode = true;
  const auto latents = (*engine)->generate(parts);
  ASSERT_TRUE(latents.ok()) << latents.status().message();
  EXPECT_TRUE(latents->images.empty());
  if (positive->text.shape[1] != negative->text.shape[1]) {
    // PixArt: embeddings have the length of their prompt, so that its padding is another one; the sums round
    // differently.
    for (size_t i = 0; i < expected->latents.data.size(); ++i)
      ASSERT_NEAR(latents->latents.data[i], expected->latents.data[i], 1e-3) << i;
    return;
  }
  EXPECT_EQ(latents->latents.data, expected->latents.data);
  const auto pictures = (*engine)->decode(latents->latents);
  ASSERT_TRUE(pictures.ok()) << pictures.status().message();
  ASSERT_EQ(pictures->images.size(), 1u);
  EXPECT_TRUE(pictures->videos.empty());
  EXPECT_EQ(pictures->images[0].rgb, expected->images[0].rgb);
}

TEST_P(PipelineParts, RefuseWhatDoesNotFit) {
  ImageOptions options;
  options.threads = 1;
  options.max_side = 64;
  const auto engine = ImageEngine::open(fmt::format("{}/image/{}", testing::golden_root(), GetParam()), options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  const auto says = [](const Status& status, const char* text) {
    EXPECT_THAT(status.message(), ::testing::HasSubstr(text));
  };
  says((*engine)->encode_prompts({}, 0).status(), "no prompt");
  says((*engine)->encode_prompts({"x"}, 1 << 20).status(), "max_sequence_length 1048576");
  says((*engine)->decode({{1, 3, 4, 4}, std::vector<float>(48)}).status(), "latents are [1, 3, 4, 4]");
  says((*engine)->decode({{4, 4}, std::vector<float>(16)}).status(), "latents are [4, 4]");
  ImageRequest request = (*engine)->defaults();
  request.prompts = {"a star"};
  request.num_inference_steps = 1;
  request.width = request.height = 32;
  request.keep_latents = true;
  auto result = (*engine)->generate(request);
  ASSERT_TRUE(result.ok()) << result.status().message();
  FloatArray latents = result->latents;
  latents.data[3] = std::numeric_limits<float>::infinity();
  says((*engine)->decode(latents).status(), "not finite");
  latents.data.pop_back();
  says((*engine)->decode(latents).status(), "elements");
  const auto embeds = (*engine)->encode_prompts({"a star"}, 0);
  ASSERT_TRUE(embeds.ok());
  request.prompts.clear();
  request.prompt_embeds = std::make_shared<FloatArray>(embeds->text);
  if (!embeds->pooled.shape.empty()) request.pooled_embeds = std::make_shared<FloatArray>(embeds->pooled);
  request.guidance_scale = request.true_cfg_scale = 3;
  says((*engine)->generate(request).status(), "guidance needs negative_prompt_embeds");
}

INSTANTIATE_TEST_SUITE_P(Families, PipelineParts,
                         ::testing::Values("pipeline_sd1", "pipeline_sdxl", "pipeline_sd3", "pipeline_pixart"));

std::string mode_name(const ::testing::TestParamInfo<Mode>& info) {
  constexpr const char* kTypes[] = {"auto", "f32", "bf16", "q8", "q8_0", "w8a8"};
  return fmt::format("{}_{}{}", info.param.pipeline, info.param.device == "cpu" ? "" : "device_",
                     kTypes[static_cast<int>(info.param.type)]);
}
INSTANTIATE_TEST_SUITE_P(Families, Pipelines, ::testing::ValuesIn(modes()), mode_name);

}  // namespace
}  // namespace redline
