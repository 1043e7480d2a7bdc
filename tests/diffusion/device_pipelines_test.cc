// Whole pipelines on a tile device beside the same ones on the CPU, in float32, over the tiny random models of
// tests/golden/image: every solver, every guidance, adapters, tiles of the VAE, and what comes to the host.
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include "diffusion/pipeline_loader.h"
#include "diffusion/solver.h"
#include "redline/image.h"
#include "support/counted_device.h"
#include "support/golden.h"
#include "support/pipeline_schedules.h"
#include "support/safetensors_file.h"
#include "support/temporary_folder.h"

namespace redline {
namespace {

using testing::SafetensorsFile;

std::string image_golden(const std::string& name) { return testing::golden_root() + "/image/" + name; }

std::vector<float> small_numbers(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.2F);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

/// A FLUX pipeline: the transformer of flux_dev, whose text inputs get the widths of encoders of other pipelines.
struct FluxPipeline {
  testing::TemporaryFolder folder;
  std::string path = folder.path() + "/flux";

  FluxPipeline() {
    constexpr auto kAll = std::filesystem::copy_options::recursive;
    std::filesystem::create_directories(path + "/transformer");
    const auto take = [&](const char* from, const char* as) {
      std::filesystem::copy(image_golden(from), path + "/" + as, kAll);
    };
    take("pipeline_sd1/text_encoder", "text_encoder");
    take("pipeline_sd1/tokenizer", "tokenizer");
    take("pipeline_sd3/text_encoder_3", "text_encoder_2");
    take("pipeline_sd3/tokenizer_3", "tokenizer_2");
    take("pipeline_sd3/scheduler", "scheduler");
    take("pipeline_sd3/vae", "vae");
    const auto config_of = [&](const std::string& file) { return nlohmann::json::parse(std::ifstream(file)); };
    nlohmann::json config = config_of(image_golden("flux_dev/config.json"));
    const int64_t pooled = config_of(path + "/text_encoder/config.json")["hidden_size"],
                  text = config_of(path + "/text_encoder_2/config.json")["d_model"];
    config["pooled_projection_dim"] = pooled;
    config["joint_attention_dim"] = text;
    std::ofstream(path + "/transformer/config.json") << config;
    std::ofstream(path + "/model_index.json")
        << R"({"_class_name": "FluxPipeline", "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
               "text_encoder": ["transformers", "CLIPTextModel"], "tokenizer": ["transformers", "CLIPTokenizer"],
               "text_encoder_2": ["transformers", "T5EncoderModel"], "tokenizer_2": ["transformers", "T5TokenizerFast"],
               "transformer": ["diffusers", "FluxTransformer2DModel"], "vae": ["diffusers", "AutoencoderKL"]})";
    const SafetensorsFile from = SafetensorsFile::read(image_golden("flux_dev/model.safetensors"));
    SafetensorsFile to;
    for (const auto& [name, tensor] : from.header.items()) {
      if (name == "__metadata__") continue;
      std::vector<int64_t> shape = tensor["shape"];
      const bool is_text = name == "context_embedder.weight";
      if (is_text || name == "time_text_embed.text_embedder.linear_1.weight") {
        shape[1] = is_text ? text : pooled;
        const std::vector<float> values = small_numbers(shape[0] * shape[1], is_text ? 1 : 2);
        to.add(name, "F32", shape, values.data(), values.size() * sizeof(float));
        continue;
      }
      const size_t begin = tensor["data_offsets"][0], end = tensor["data_offsets"][1];
      to.add(name, std::string(tensor["dtype"]).c_str(), shape, from.data.data() + begin, end - begin);
    }
    to.write(path + "/transformer/diffusion_pytorch_model.safetensors");
  }
};

/// A pipeline on the CPU and on the device that tests run on.
struct OnBoth {
  std::shared_ptr<Runtime> runtime = Runtime::open({.threads = 2}).value();
  std::unique_ptr<ImageEngine> cpu, device;

  explicit OnBoth(const std::string& path, ImageOptions options = {}) {
    options.dtype = Precision::kF32;
    options.max_side = 96;
    options.runtime = runtime;
    for (auto* engine : {&cpu, &device}) {
      options.device = engine == &cpu ? "cpu" : test::test_device();
      auto opened = ImageEngine::open(path, options);
      EXPECT_TRUE(opened.ok()) << path << ": " << opened.status().message();
      if (opened.ok()) *engine = std::move(opened).value();
    }
  }
  bool is_open() const { return cpu && device; }

  ImageRequest request(int64_t width, int64_t height, int64_t steps = 3) const {
    ImageRequest request = cpu->defaults();
    request.prompts = {"a large red circle on a blue background"};
    request.negative_prompt = "a house";
    request.width = width;
    request.height = height;
    request.num_inference_steps = steps;
    request.max_sequence_length = 16;
    request.seed = 5;
    request.keep_latents = true;
    return request;
  }
  /// Expects equal results from the CPU and the device, and returns the device's.
  ImageResult expect_alike(const ImageRequest& request) const {
    const auto want = cpu->generate(request), got = device->generate(request);
    EXPECT_TRUE(want.ok()) << want.status().message();
    EXPECT_TRUE(got.ok()) << got.status().message();
    if (!want.ok() || !got.ok()) return {};
    EXPECT_EQ(got->computed, want->computed);
    EXPECT_EQ(got->latents.shape, want->latents.shape);
    double error = 0, size = 0;
    for (size_t i = 0; i < want->latents.data.size(); ++i) {
      error += std::pow(static_cast<double>(got->latents.data.at(i)) - want->latents.data[i], 2);
      size += std::pow(static_cast<double>(want->latents.data[i]), 2);
    }
    // Both may be 1e-4 from diffusers, SD3 1e-3 (pipelines_test.cc).
    EXPECT_LE(std::sqrt(error / size), cpu->family() == "sd3" ? 2e-3 : 2e-4);
    EXPECT_EQ(got->images.size(), want->images.size());
    for (size_t i = 0; i < want->images.size(); ++i) {
      double squares = 0;
      const std::vector<uint8_t>&a = want->images[i].rgb, &b = got->images.at(i).rgb;
      EXPECT_EQ(a.size(), b.size());
      for (size_t k = 0; k < std::min(a.size(), b.size()); ++k) squares += std::pow(double{1} * a[k] - b[k], 2);
      EXPECT_LE(squares, 255.0 * 255.0 * 1e-5 * static_cast<double>(a.size())) << "PSNR below 50 dB: image " << i;
    }
    return *got;
  }
};

std::vector<std::string> every_solver() {
  std::vector<std::string> names;
  std::istringstream list(solver_names());
  for (std::string name; std::getline(list >> std::ws, name, ',');) names.push_back(name);
  return names;
}

TEST(DeviceImages, EverySolver) {
  const OnBoth diffusion(image_golden("pipeline_sd1")), flow(image_golden("pipeline_sd3"));
  ASSERT_TRUE(diffusion.is_open() && flow.is_open());
  const RgbImage image = {16, 16, std::vector<uint8_t>(16 * 16 * 3, 90)};
  for (const std::string& solver : every_solver()) {
    int runs = 0;
    for (const OnBoth* model : {&diffusion, &flow}) {
      ImageRequest request = model->request(16, 16);
      request.guidance_scale = 3;
      request.solver = solver;
      SCOPED_TRACE(solver + " of " + model->cpu->family());
      if (model->cpu->generate(request).status().code() == Code::unsupported) continue;  // for the other kind of model
      EXPECT_TRUE(
          model->expect_alike(request).solver.starts_with(solver == "euler" && model == &flow ? "flow" : solver));
      request.init_image = std::make_shared<RgbImage>(image);
      request.strength = 0.7;
      model->expect_alike(request);
      ++runs;
    }
    EXPECT_GE(runs, 1) << solver;
  }
}

TEST(DeviceImages, EveryGuidance) {
  const FluxPipeline flux;
  for (const std::string& path :
       {image_golden("pipeline_sdxl"), image_golden("pipeline_pixart"), image_golden("pipeline_sd3"), flux.path}) {
    const OnBoth model(path);
    ASSERT_TRUE(model.is_open());
    const bool is_distilled = model.cpu->is_guidance_distilled();
    const auto run = [&](const char* what, double scale, const std::function<void(ImageRequest&)>& change) {
      SCOPED_TRACE(fmt::format("{}: {}", model.cpu->family(), what));
      ImageRequest request = model.request(16, 24);
      request.prompts = {"a large red circle on a blue background", "two small stars"};
      (is_distilled ? request.true_cfg_scale : request.guidance_scale) = scale;
      change(request);
      return model.expect_alike(request).latents.data;
    };
    std::vector<std::vector<float>> drawn;
    drawn.push_back(run("none", 1, [](ImageRequest&) {}));
    drawn.push_back(run("guided", 3, [](ImageRequest&) {}));
    run("one branch after the other", 3, [](ImageRequest& r) { r.split_guidance = true; });
    drawn.push_back(run("in the middle", 3, [](ImageRequest& r) { r.guidance_begin = 0.3, r.guidance_end = 0.6; }));
    if (is_distilled) drawn.push_back(run("distilled", 1, [](ImageRequest& r) { r.guidance_scale = 9; }));
    for (size_t i = 1; i < drawn.size(); ++i) EXPECT_NE(drawn[i], drawn[0]) << path << ": " << i;
  }
}

TEST(DeviceImages, StepCachesOfWholePipelines) {
  const FluxPipeline flux;
  for (const std::string& path :
       {image_golden("pipeline_sd1"), image_golden("pipeline_pixart"), image_golden("pipeline_sd3"), flux.path}) {
    const OnBoth model(path);
    ASSERT_TRUE(model.is_open());
    ImageRequest request = model.request(16, 16, 6);
    request.guidance_scale = 3;
    const bool has_parts = path.find("sd1") == std::string::npos;
    for (const char* rule : {"redline:budget=3", "fbcache:threshold=10", "taylorseer:interval=2"}) {
      if (!has_parts && rule != std::string_view("redline:budget=3")) continue;
      SCOPED_TRACE(fmt::format("{}: {}", model.cpu->family(), rule));
      request.cache = rule;
      EXPECT_LT(model.expect_alike(request).executed_share, 1);
    }
  }
}

/// A LoRA file of rank 2 for products of a transformer and of its first text encoder.
std::string write_lora(const std::string& path,
                       const std::vector<std::tuple<std::string, int64_t, int64_t>>& products) {
  constexpr int64_t kRank = 2;
  SafetensorsFile file;
  uint32_t seed = 0;
  for (const auto& [name, outputs, inputs] : products) {
    const std::vector<float> down = small_numbers(kRank * inputs, ++seed), up = small_numbers(outputs * kRank, ++seed);
    file.add(name + ".lora_A.weight", "F32", {kRank, inputs}, down.data(), down.size() * sizeof(float));
    file.add(name + ".lora_B.weight", "F32", {outputs, kRank}, up.data(), up.size() * sizeof(float));
  }
  file.write(path);
  return path;
}

TEST(DeviceImages, AdaptersAreSwapped) {
  const FluxPipeline flux;
  ImageOptions options;
  options.max_adapter_rank = 6;
  const OnBoth model(flux.path, options);
  ASSERT_TRUE(model.is_open());
  const std::string own = write_lora(flux.folder.path() + "/own.safetensors",
                                     {{"transformer.transformer_blocks.0.attn.to_q", 32, 32},
                                      {"transformer.single_transformer_blocks.0.proj_out", 32, 160},
                                      {"text_encoder.text_model.encoder.layers.0.self_attn.q_proj", 12, 12}});
  for (ImageEngine* engine : {model.cpu.get(), model.device.get()}) {
    ASSERT_EQ(engine->load_adapter("own", own).message(), "");
    ASSERT_EQ(engine->load_adapter("first", image_golden("flux_lora/first.safetensors")).message(), "");
  }
  std::vector<std::vector<float>> drawn;
  const std::vector<std::vector<std::pair<std::string, double>>> sets = {
      {}, {{"own", 1.0}}, {{"own", 0.5}, {"first", -1.0}}, {{"first", 1.0}}, {}};
  for (const auto& set : sets) {
    ASSERT_TRUE(model.cpu->set_adapters(set).ok() && model.device->set_adapters(set).ok());
    drawn.push_back(model.expect_alike(model.request(16, 16)).latents.data);
  }
  EXPECT_EQ(drawn.front(), drawn.back());
  for (size_t i = 1; i + 1 < drawn.size(); ++i) EXPECT_NE(drawn[i], drawn[i - 1]) << i;
}

TEST(DeviceImages, MasksAndTilesOfTheVae) {
  for (const char* pipeline : {"pipeline_sd2", "pipeline_sd_inpaint", "pipeline_sdxl_inpaint"}) {
    ImageOptions options;
    options.vae_tile = 64;
    const OnBoth model(image_golden(pipeline), options);
    ASSERT_TRUE(model.is_open());
    SCOPED_TRACE(pipeline);
    constexpr int64_t kWidth = 80, kHeight = 16;  // two tiles
    ImageRequest request = model.request(kWidth, kHeight, 2);
    RgbImage image = {kWidth, kHeight, {}}, mask = image;
    for (size_t i = 0; i < kWidth * kHeight * 3; ++i) {
      image.rgb.push_back(static_cast<uint8_t>(i * 37 % 251));
      mask.rgb.push_back(i / 3 % kWidth < kWidth / 2 ? 255 : 0);
    }
    request.guidance_scale = 2;
    request.init_image = std::make_shared<RgbImage>(image);
    request.mask = std::make_shared<RgbImage>(mask);
    model.expect_alike(request);
    request.keep_unmasked = true;
    const ImageResult kept = model.expect_alike(request);
    size_t changed = 0;
    for (size_t i = 0; i < mask.rgb.size(); ++i)
      changed += mask.rgb[i] == 0 && kept.images.at(0).rgb[i] != image.rgb[i];
    EXPECT_EQ(changed, 0u);
    request.mask = nullptr;
    request.keep_unmasked = false;
    model.expect_alike(request);
  }
}

// Every network of every golden pipeline, with room for adapters, as engines compile them: the parts of the denoiser,
// what it computes once for a run, encoders and VAE, on a GPU of 132 multiprocessors.
TEST(DeviceImages, SchedulesAreOrdered) {
  if (test::test_device() != "emu") GTEST_SKIP() << "the number of multiprocessors is the device's own";
  const FluxPipeline flux;
  std::vector<std::string> pipelines = {flux.path};
  for (const auto& entry : std::filesystem::directory_iterator(image_golden("")))
    if (std::filesystem::exists(entry.path() / "model_index.json")) pipelines.push_back(entry.path().string());
  EXPECT_GE(pipelines.size(), 9u);
  for (const std::string& path : pipelines) {
    SCOPED_TRACE(path);
    ImageOptions options;
    options.max_side = 64;
    options.max_batch = 2;
    options.max_adapter_rank = 8;
    // A text encoder, a denoiser, the VAE both ways.
    testing::expect_ordered_schedules(path, options, 4);
  }
}

// Values that a part of a network hands to the next stay on the device, and a new size runs without a capture: graphs
// are captured when a size comes a second time.
TEST(DeviceImages, StepsHandOnInTheDevicesMemory) {
  const FluxPipeline flux;
  const OnBoth model(flux.path);
  ASSERT_TRUE(model.is_open());
  const testing::CountedDevice device(resources_of(*model.runtime));
  int64_t num_captures = 0;
  for (const int64_t side : {16, 24}) {
    ImageRequest request = model.request(side, side, 4);
    request.cache = "fbcache:threshold=0.2";
    request.true_cfg_scale = 2;
    request.skip_decode = true;
    // Model outputs of two branches, [side / 4 tokens each way, 16].
    const int64_t output_bytes = 2 * (side / 4) * (side / 4) * 16 * 4;
    ASSERT_TRUE(model.device->encode_prompts({request.prompts[0]}, request.max_sequence_length).ok());
    ASSERT_TRUE(model.device->encode_prompts({request.prompts[0]}, request.max_sequence_length).ok());
    (void)testing::CountedDevice::take();
    std::vector<testing::DeviceCounts> steps;
    const auto result = model.device->generate(request, [&](const ImageProgress&) {
      steps.push_back(testing::CountedDevice::take());
      return true;
    });
    ASSERT_TRUE(result.ok()) << result.status().message();
    ASSERT_EQ(steps.size(), 4u);
    EXPECT_EQ(steps[0].captures, 0) << side;
    for (size_t i = 1; i < steps.size(); ++i) {
      EXPECT_LE(steps[i].largest_download, output_bytes) << side << ", " << i;
      num_captures += steps[i].captures;
    }
  }
  EXPECT_GT(num_captures, 0);
}

}  // namespace
}  // namespace redline
