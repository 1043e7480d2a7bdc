// Whole pipelines of each family on tiny random weights: what diffusers draws from the same prompt and noise.
// tests/golden/image/make_pipelines.py makes them.
#include <cmath>

#include "redline/image.h"
#include "support/golden.h"
#include "support/npz.h"

namespace redline {
namespace {

struct Mode {
  const char* pipeline;
  ImageType type;
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
  auto engine = ImageEngine::open(folder, options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  for (const auto& [name, noise] : *arrays) {
    if (!name.ends_with(".noise")) continue;
    const std::string run = name.substr(0, name.size() - 6);
    const auto find = [&](const char* what) -> const testing::NpyArray& {
      return arrays->at(fmt::format("{}.{}", run, what));
    };
    FloatArray init{noise.shape, {noise.values.begin(), noise.values.end()}};
    ImageRequest request = (*engine)->defaults();
    for (const char* prompt : {"a large red circle on a blue background", "two small stars"})
      request.prompts.emplace_back(prompt);
    request.negative_prompt = "a house";
    request.width = static_cast<int64_t>(find("sizes").values[0]);
    request.height = static_cast<int64_t>(find("sizes").values[1]);
    request.guidance = find("guidance").values[0];
    request.steps = 4;
    request.max_sequence_length = 24;
    request.init_noise = &init;
    request.keep_latents = true;
    auto result = (*engine)->generate(request);
    ASSERT_TRUE(result.ok()) << run << ": " << result.status().message();
    const bool exact = GetParam().type == ImageType::kF32;
    const auto& latents = find("latents").values;
    ASSERT_EQ(result->latents.data.size(), latents.size());
    double error = 0, size = 0;
    for (size_t i = 0; i < latents.size(); ++i) {
      error += std::pow(static_cast<double>(result->latents.data[i]) - latents[i], 2);
      size += std::pow(latents[i], 2);
    }
    // Both sides round to float32, and guidance multiplies the difference of two branches by four at each of four steps;
    // or rounding to 8 bits of mantissa, some ten products a step in a row.
    EXPECT_LE(std::sqrt(error / size), exact ? 1e-3 : 5e-2) << run;
    const auto& expected = find("picture").values;
    const size_t pixels = expected.size() / 2;
    double squares = 0;
    for (size_t i = 0; i < expected.size(); ++i)
      squares += std::pow(static_cast<double>(result->pictures.at(i / pixels).rgb.at(i % pixels)) - expected[i], 2);
    const double psnr = 10 * std::log10(255.0 * 255.0 * static_cast<double>(expected.size()) / std::max(squares, 1e-9));
    EXPECT_GE(psnr, exact ? 50 : 35) << run;
  }
}

std::vector<Mode> modes() {
  std::vector<Mode> all;
  for (const char* pipeline : {"pipeline_sd3", "pipeline_sd3_without_t5", "pipeline_pixart"})
    for (const ImageType type : {ImageType::kF32, ImageType::kAuto}) all.push_back({pipeline, type});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Families, Pipelines, ::testing::ValuesIn(modes()), [](const auto& info) {
  return fmt::format("{}_{}", info.param.pipeline, info.param.type == ImageType::kF32 ? "f32" : "auto");
});

}  // namespace
}  // namespace redline
