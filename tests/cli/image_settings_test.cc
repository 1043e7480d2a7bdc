#include "cli/image_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace redline::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ImageSettings, ReadsTheParametersOfOtherPrograms) {
  const Json json = parse_parameters(
      "a lighthouse,\nat night\nNegative prompt: blurry, ugly\nSteps: 20, Sampler: DPM++ 2M, Schedule type: Karras, "
      "CFG "
      "scale: 7.5, Seed: 965400086, Size: 512x768, Model hash: 81761151, Model: sd, Lora hashes: \"a: 1, b: 2\", "
      "Version: v1.10");
  EXPECT_EQ(json, Json::parse(R"({"negative": "blurry, ugly", "PROMPT": "a lighthouse,\nat night", "steps": "20",
    "solver": "DPM++ 2M-karras", "cfg-scale": "7.5", "seed": "965400086", "width": "512", "height": "768"})"));
  EXPECT_EQ(parse_parameters("only text"), Json::object());
  EXPECT_EQ(parse_parameters("a\nSteps: many, Size: x")["PROMPT"], "a");
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
