#include "diffusion/pipeline_files.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "support/temporary_folder.h"

namespace redline {
namespace {

using ::testing::HasSubstr;

std::string bundled() { return std::string(REDLINE_SOURCE_DIR) + "/assets/redline-shapes"; }

TEST(PipelineFiles, TheBundledPipelineIsRead) {
  auto files = PipelineFiles::open(bundled());
  ASSERT_TRUE(files.ok()) << files.status().message();
  EXPECT_EQ(files->class_name, "FluxPipeline");
  ASSERT_TRUE(files->find("text_encoder_2"));
  EXPECT_EQ(files->find("text_encoder_2")->class_name, "T5EncoderModel");
  EXPECT_EQ(files->scheduler_config["shift"], 2.0);
  EXPECT_EQ(files->defaults.num_inference_steps, 28);
  EXPECT_EQ(files->defaults.true_cfg_scale, 4.0);
  EXPECT_EQ(files->defaults.negative_prompt, "");
  auto transformer = files->open_component("transformer");
  ASSERT_TRUE(transformer.ok()) << transformer.status().message();
  EXPECT_EQ(transformer->config["num_layers"], 3);
  EXPECT_GT(transformer->tensors.size(), 100u);
  EXPECT_EQ(files->open_component("unet").status().code(), Code::not_found);
}

TEST(PipelineFiles, WhatIsWrongIsNamed) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path();
  const auto write = [&](const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(path + "/" + name).parent_path());
    std::ofstream(path + "/" + name) << text;
  };
  const auto message = [&] { return PipelineFiles::open(path).status().message(); };
  EXPECT_THAT(PipelineFiles::open(path + "/none").status().message(), HasSubstr("no such folder"));
  EXPECT_THAT(message(), HasSubstr("has no model_index.json"));
  write("model_index.json", "[1]");
  EXPECT_THAT(message(), HasSubstr("not a JSON object"));
  write("model_index.json", "{}");
  EXPECT_THAT(message(), HasSubstr("_class_name must be"));
  write("model_index.json", R"({"_class_name": "FluxPipeline", "vae": ["diffusers"]})");
  EXPECT_THAT(message(), HasSubstr("vae must be [library, class]"));
  write("model_index.json", R"({"_class_name": "FluxPipeline", "../vae": ["diffusers", "AutoencoderKL"]})");
  EXPECT_THAT(message(), HasSubstr("is not the name of a folder"));
  write("model_index.json", R"({"_class_name": "FluxPipeline", "vae": ["diffusers", "AutoencoderKL"]})");
  EXPECT_THAT(message(), HasSubstr("names no scheduler"));
  write("model_index.json",
        R"({"_class_name": "P", "scheduler": ["diffusers", "X"], "vae": ["diffusers", "AutoencoderKL"],
      "unet": ["x", "Y"],
                               "safety_checker": [null, null], "requires_safety_checker": false})");
  EXPECT_THAT(message(), HasSubstr("scheduler/scheduler_config.json"));
  write("scheduler/scheduler_config.json", "{}");
  auto files = PipelineFiles::open(path);
  ASSERT_TRUE(files.ok()) << files.status().message();
  EXPECT_EQ(files->components.size(), 3u);
  EXPECT_THAT(files->open_component("unet").status().message(), HasSubstr("unet is a Y; Redline has Flux"));
  EXPECT_THAT(files->open_component("vae").status().message(), HasSubstr("vae is missing: model_index.json names it"));
  write("redline.json", R"({"defaults": {"steps": "many"}})");
  EXPECT_THAT(message(), HasSubstr("steps"));
  write("redline.json", R"({"defaults": {"guidance": -1}})");
  EXPECT_THAT(message(), HasSubstr("guidance"));
  write("redline.json", R"({"step_cache": "../masks.json"})");
  EXPECT_THAT(message(), HasSubstr("is not the name of a file in the folder"));
  write("redline.json", R"({"step_cache": "masks.json"})");
  files = PipelineFiles::open(path);
  ASSERT_TRUE(files.ok()) << files.status().message();
  EXPECT_EQ(files->defaults.step_cache, "masks.json");
}

// The published PixArt folders are older than the class that reads them now.
TEST(PipelineFiles, PixArtUnderItsOldClass) {
  namespace fs = std::filesystem;
  const testing::TemporaryFolder folder;
  const std::string path = folder.path(), stored = REDLINE_GOLDEN_DIR "/image/pipeline_pixart/";
  fs::copy(stored, path, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  const auto write = [&](const std::string& name, const nlohmann::json& json) {
    std::ofstream(path + "/" + name) << json.dump();
  };
  nlohmann::json index = nlohmann::json::parse(std::ifstream(stored + "model_index.json"));
  nlohmann::json config = nlohmann::json::parse(std::ifstream(stored + "transformer/config.json"));
  for (const char* in_index : {"Transformer2DModel", "PixArtTransformer2DModel"})
    for (const char* in_config : {"Transformer2DModel", "PixArtTransformer2DModel"}) {
      index["transformer"] = {"diffusers", in_index};
      config["_class_name"] = in_config;
      write("model_index.json", index);
      write("transformer/config.json", config);
      auto files = PipelineFiles::open(path);
      ASSERT_TRUE(files.ok()) << files.status().to_string();
      auto transformer = files->open_component("transformer");
      EXPECT_TRUE(transformer.ok()) << transformer.status().to_string();
    }
  config["_class_name"] = "SD3Transformer2DModel";
  write("transformer/config.json", config);
  EXPECT_FALSE(PipelineFiles::open(path)->open_component("transformer").ok());
}

TEST(PipelineFiles, ATransformerMayBeOneFile) {
  namespace fs = std::filesystem;
  const testing::TemporaryFolder folder;
  const std::string path = folder.path();
  const std::string stored = REDLINE_GOLDEN_DIR "/image/flux_files/";
  const auto write = [&](const std::string& name, const std::string& text) {
    fs::create_directories(fs::path(path + "/" + name).parent_path());
    std::ofstream(path + "/" + name) << text;
  };
  write("model_index.json", R"({"_class_name": "FluxPipeline", "scheduler": ["diffusers", "X"],
      "transformer": ["diffusers", "FluxTransformer2DModel"], "vae": ["diffusers", "AutoencoderOdd"],
      "text_encoder": ["transformers", "CLIPTextModel"]})");
  write("scheduler/scheduler_config.json", "{}");
  auto files = PipelineFiles::open(path);
  ASSERT_TRUE(files.ok()) << files.status().to_string();
  EXPECT_EQ(files->open_component("vae").status().code(), Code::unsupported);
  EXPECT_THAT(
      files->open_component("vae").status().message(),
      HasSubstr("vae is a AutoencoderOdd (the nearest is AutoencoderKL); Redline has FluxTransformer2DModel, SD3"));
  EXPECT_THAT(files->open_component("transformer").status().message(), HasSubstr("transformer is missing"));

  fs::create_directories(path + "/transformer");
  fs::copy_file(stored + "config.json", path + "/transformer/config.json");
  fs::copy_file(stored + "original.gguf", path + "/transformer/flux.gguf");
  auto transformer = files->open_component("transformer");
  ASSERT_TRUE(transformer.ok()) << transformer.status().to_string();
  EXPECT_EQ(transformer->config["num_single_layers"], 1);
  EXPECT_EQ(transformer->format, "gguf");
  // Two files: which one is meant is not for us to say.
  fs::copy_file(stored + "original.safetensors", path + "/transformer/flux.safetensors");
  EXPECT_FALSE(files->open_component("transformer").ok());
  files->denoiser_file = stored + "original.safetensors";
  EXPECT_TRUE(files->open_component("transformer").ok());
  auto other = *files;
  other.components[0].class_name = "SD3Transformer2DModel";
  ASSERT_EQ(other.components[0].name, "scheduler");
  other.components[0].name = "transformer";
  EXPECT_THAT(other.open_component("transformer").status().message(),
              HasSubstr("in one file is a FluxTransformer2DModel; this pipeline has a SD3Transformer2DModel"));
  files->denoiser_file.clear();
  fs::copy_file(stored + "diffusers/diffusion_pytorch_model.safetensors",
                path + "/transformer/diffusion_pytorch_model.safetensors");
  write("transformer/config.json", R"({"_class_name": "SD3Transformer2DModel"})");
  EXPECT_THAT(files->open_component("transformer").status().message(),
              HasSubstr("_class_name is SD3Transformer2DModel, and model_index.json names FluxTransformer2DModel"));
}

}  // namespace
}  // namespace redline
