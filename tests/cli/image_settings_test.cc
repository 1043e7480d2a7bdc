#include "cli/image_settings.h"

#include "cli/comfy_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace redline::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ImageSettings, ReadsTheParametersOfOtherPrograms) {
  const ReadSettings read = parse_parameters(
      "a lighthouse,\nat night\nNegative prompt: blurry, ugly\nSteps: 20, Sampler: DPM++ 2M, Schedule type: Karras, "
      "CFG "
      "scale: 7.5, Seed: 965400086, Size: 512x768, Model hash: 81761151, Model: sd, Lora hashes: \"a: 1, b: 2\", "
      "Version: v1.10");
  EXPECT_EQ(read.options,
            Json::parse(R"({"negative": "blurry, ugly", "PROMPT": "a lighthouse,\nat night", "steps": "20",
    "cfg-scale": "7.5", "seed": "965400086", "width": "512", "height": "768", "solver": "DPM++ 2M-karras"})"));
  EXPECT_THAT(read.left_out, ElementsAre("Model hash: 81761151", "Model: sd", "Lora hashes: a: 1, b: 2"));
  EXPECT_EQ(parse_parameters("only text").options, Json::object());
  const ReadSettings odd = parse_parameters("a\nSteps: many, Size: x");
  EXPECT_EQ(odd.options["PROMPT"], "a");
  EXPECT_THAT(odd.left_out, ElementsAre("Steps: many", "Size: x"));
  EXPECT_EQ(parse_parameters("Steps: 3, Sampler: Euler").options["PROMPT"], "");
}

TEST(ImageSettings, WhatIsNotTakenOverOfA1111IsNamed) {
  const auto of = [](const std::string& settings) { return parse_parameters("a\nSteps: 4, " + settings); };
  EXPECT_THAT(of("Sampler: Euler, Clip skip: 2, ENSD: 31337").left_out, ElementsAre("Clip skip: 2", "ENSD: 31337"));
  // The schedule is another; the sampler stays.
  const ReadSettings sgm = of("Sampler: Euler, Schedule type: SGM Uniform");
  EXPECT_EQ(sgm.options["solver"], "Euler");
  EXPECT_THAT(sgm.left_out, ElementsAre("Schedule type: SGM Uniform"));
  // DPM++ SDE, of two evaluations a step, is not DPM++ 2M SDE.
  for (const char* sampler : {"DPM++ SDE", "DPM++ SDE Karras", "Heun", "DPM++ 2S a"}) {
    const ReadSettings other = of(fmt::format("Sampler: {}", sampler));
    EXPECT_FALSE(other.options.contains("solver")) << sampler;
    EXPECT_THAT(other.left_out, ElementsAre(fmt::format("Sampler: {}", sampler)));
  }
  for (const char* sampler : {"DPM++ 2M SDE", "DPM++ 2M SDE Karras", "DPM++ 2M Karras", "Euler a", "UniPC", "DDIM"}) {
    EXPECT_EQ(of(fmt::format("Sampler: {}", sampler)).options["solver"], sampler);
    EXPECT_TRUE(of(fmt::format("Sampler: {}", sampler)).left_out.empty()) << sampler;
  }
  EXPECT_EQ(of("Sampler: DPM++ 2M, Schedule type: Automatic").options["solver"], "DPM++ 2M-karras");
  EXPECT_EQ(of("Sampler: Euler, Schedule type: Automatic").options["solver"], "Euler");
}

TEST(ImageSettings, ReadsTheNodesOfComfyUi) {
  const ReadSettings read = parse_comfy_prompt(R"({
    "3": {"class_type": "KSampler", "inputs": {"seed": 5, "steps": 4, "cfg": 7.0, "sampler_name": "euler",
      "scheduler": "normal", "denoise": 1.0, "positive": ["6", 0], "negative": ["7", 0], "model": ["10", 0],
      "latent_image": ["5", 0]}},
    "4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "sd.safetensors"}},
    "5": {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 96, "batch_size": 1}},
    "6": {"class_type": "CLIPTextEncode", "inputs": {"text": "a red house", "clip": ["11", 0]}},
    "7": {"class_type": "CLIPTextEncode", "inputs": {"text": "blurry", "clip": ["4", 1]}},
    "8": {"class_type": "VAEDecode", "inputs": {"samples": ["3", 0], "vae": ["4", 2]}},
    "10": {"class_type": "LoraLoader", "inputs": {"lora_name": "style.safetensors", "model": ["4", 0]}},
    "11": {"class_type": "CLIPSetLastLayer", "inputs": {"stop_at_clip_layer": -2, "clip": ["4", 1]}}})");
  EXPECT_EQ(read.options, Json::parse(R"({"seed": 5, "steps": 4, "cfg-scale": 7.0, "PROMPT": "a red house",
    "negative": "blurry", "width": 64, "height": 96, "solver": "euler"})"));
  EXPECT_THAT(read.left_out, ElementsAre("CheckpointLoaderSimple: sd.safetensors", "LoraLoader: style.safetensors",
                                         "CLIPSetLastLayer: -2"));
  const ReadSettings flux = parse_comfy_prompt(R"({
    "1": {"class_type": "SamplerCustomAdvanced", "inputs": {"noise": ["2", 0], "guider": ["3", 0], "sampler": ["4", 0],
      "sigmas": ["5", 0], "latent_image": ["9", 0]}},
    "2": {"class_type": "RandomNoise", "inputs": {"noise_seed": 9}},
    "3": {"class_type": "BasicGuider", "inputs": {"conditioning": ["7", 0]}},
    "4": {"class_type": "KSamplerSelect", "inputs": {"sampler_name": "heun"}},
    "5": {"class_type": "BasicScheduler", "inputs": {"scheduler": "simple", "steps": 20, "denoise": 0.5}},
    "6": {"class_type": "CLIPTextEncode", "inputs": {"text": ["8", 0]}},
    "7": {"class_type": "FluxGuidance", "inputs": {"guidance": 3.5, "conditioning": ["6", 0]}},
    "8": {"class_type": "PrimitiveString", "inputs": {"value": "a fox"}},
    "9": {"class_type": "EmptySD3LatentImage", "inputs": {"width": 64, "height": 64, "batch_size": 2}}})");
  EXPECT_EQ(flux.options, Json::parse(R"({"seed": 9, "steps": 20, "guidance": 3.5, "PROMPT": "a fox", "width": 64,
    "height": 64})"));
  EXPECT_THAT(flux.left_out, ElementsAre("batch_size: 2", "denoise: 0.5", "sampler_name: heun"));
  EXPECT_TRUE(parse_comfy_prompt("not JSON").options.empty());
  EXPECT_TRUE(
      parse_comfy_prompt(R"({"1": {"class_type": "KSampler", "inputs": {"positive": ["1", 0]}}})").options.empty());
}

// Every way around the circle would be 5^64 of them.
TEST(ImageSettings, LinksInACircleOfComfyUiEnd) {
  const ReadSettings read = parse_comfy_prompt(R"({
    "1": {"class_type": "KSampler", "inputs": {"steps": 4, "seed": ["2", 0]}},
    "2": {"class_type": "PrimitiveInt", "inputs": {"value": ["2", 0], "text": ["2", 0], "string": ["2", 0],
      "seed": ["2", 0], "noise_seed": ["2", 0]}}})");
  EXPECT_EQ(read.options, Json::parse(R"({"steps": 4})"));
}

TEST(ImageSettings, OptionsThatWereGivenStay) {
  ImageArgs args;
  args.steps = 5;
  args.cache = "none";
  args.given = {"steps", "cache"};
  const Json settings = {{"version", "x"}, {"MODEL", "m"},         {"PROMPT", "p"},   {"steps", 20},
                         {"seed", 7},      {"steps-budget", 10},   {"guidance", 3.5}, {"lora", {"a:0.5", "b"}},
                         {"width", 64},    {"keep-unmasked", "on"}};
  ASSERT_TRUE(args.repeat(settings).ok());
  EXPECT_EQ(args.steps, 5);
  EXPECT_EQ(args.steps_budget, std::nullopt);  // --cache replaces the other ways to choose a step cache
  EXPECT_EQ(args.seed, 7u);
  EXPECT_EQ(args.guidance, 3.5f);
  EXPECT_EQ(args.prompt, "p");
  EXPECT_THAT(args.lora, ElementsAre("a:0.5", "b"));
  EXPECT_THAT(ImageArgs().repeat({{"speed", 3}}).message(), HasSubstr("the option \"speed\", which this version"));
  EXPECT_THAT(ImageArgs().repeat({{"steps", "many"}}).message(), HasSubstr("'many' is not a whole number"));
}

// The sender of an image must not choose a file that its receiver overwrites.
TEST(ImageSettings, AnImageSetsNoOptionOfTheRun) {
  for (const char* option : {"output", "from", "save-latents", "save-steps", "trace", "device", "threads", "show"}) {
    ImageArgs args;
    Json settings = Json::object();
    settings[option] = "x";
    EXPECT_THAT(args.repeat(settings).message(), HasSubstr("is not a property of an image")) << option;
    EXPECT_EQ(args.output, "out.png");
  }
}

TEST(ImageSettings, OfAnImageWithAdaptersAndAStepCache) {
  ImageArgs args;
  args.model = "/private/models/FLUX.1-dev";
  args.lora = {"/private/style.safetensors:0.8"};
  ImageRequest request;
  request.prompts = {"one", "two"};
  request.width = 64;
  request.height = 32;
  request.num_inference_steps = 3;
  request.guidance_scale = 3.5;
  request.true_cfg_scale = 1;
  request.seed = 5;
  ImageResult result;
  result.solver = "dpm++-karras";
  result.cache = "fbcache:threshold=0.08,warmup=2";
  result.step_ms = {1, 1, 1};
  result.computed = {2, 1, 1};
  result.images.resize(2);
  const ImageText text = image_text({args, request, result, true, 1});
  EXPECT_EQ(
      text.at("parameters").substr(0, text.at("parameters").find(", Version")),
      "two <lora:style:0.8>\nSteps: 3, Sampler: DPM++ 2M, Schedule type: Karras, CFG scale: 1, Distilled CFG Scale: "
      "3.5, Seed: 6, Size: 64x32, Model: FLUX.1-dev, Step cache: \"fbcache:threshold=0.08,warmup=2\", Computed "
      "steps: 2");
  const Json nodes = Json::parse(text.at("prompt"));
  EXPECT_EQ(nodes["3"]["inputs"]["seed"], 6);
  EXPECT_EQ(nodes["20"]["inputs"]["lora_name"], "style.safetensors");
  EXPECT_EQ(nodes["6"]["inputs"]["text"], "two");
  // Folders of the user are nobody's business.
  for (const auto& [key, value] : text) EXPECT_EQ(value.find("private"), std::string::npos) << key;
}

}  // namespace
}  // namespace redline::cli
