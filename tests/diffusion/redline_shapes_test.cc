// The bundled pipeline against what diffusers drew with it: assets/redline-shapes/reference.
#include <gmock/gmock.h>

#include <cmath>

#include "diffusion/latents.h"
#include "diffusion/pipeline_loader.h"
#include "media/png.h"
#include "redline/image.h"
#include "support/golden.h"
#include "support/pipeline_schedules.h"

namespace redline {
namespace {

using ::testing::HasSubstr;
using testing::read_npy;

std::string folder() { return std::string(REDLINE_SOURCE_DIR) + "/assets/redline-shapes"; }

struct Case {
  nlohmann::json about;
  std::string prompt;
  int64_t width = 0, height = 0;
  FloatArray noise;             ///< [1, 16, h, w]
  std::vector<double> latents;  ///< packed
  RgbImage picture;

  LatentShape shape() const { return {.channels = 16, .height = height / 8, .width = width / 8, .patch = 2}; }
};

std::vector<Case> reference_cases() {
  std::vector<Case> cases;
  const std::string base = folder() + "/reference/";
  const nlohmann::json reference = testing::read_json(base + "reference.json");
  for (const auto& about : reference["cases"]) {
    Case c;
    c.about = about;
    c.prompt = about["prompt"];
    c.width = about["width"];
    c.height = about["height"];
    const std::string stem = base + fmt::format("case{}_", cases.size());
    auto noise = read_npy(stem + "noise.npy"), latents = read_npy(stem + "latents.npy");
    auto picture = read_png(stem + "picture.png");
    EXPECT_TRUE(noise.ok() && latents.ok() && picture.ok()) << stem;
    if (!noise.ok() || !latents.ok() || !picture.ok()) return {};
    const std::vector<float> packed(noise->values.begin(), noise->values.end());
    c.noise.shape = {1, 16, c.height / 8, c.width / 8};
    c.noise.data.resize(packed.size());
    unpack_latents(c.shape(), packed.data(), 16, c.noise.data.data());
    c.latents = latents->values;
    c.picture = std::move(picture).value();
    cases.push_back(std::move(c));
  }
  return cases;
}

double psnr(const RgbImage& a, const RgbImage& b) {
  EXPECT_EQ(a.rgb.size(), b.rgb.size());
  double sum = 0;
  for (size_t i = 0; i < std::min(a.rgb.size(), b.rgb.size()); ++i) {
    const double d = double{1} * a.rgb[i] - b.rgb[i];
    sum += d * d;
  }
  return sum == 0 ? 100 : 10 * std::log10(255.0 * 255.0 * static_cast<double>(a.rgb.size()) / sum);
}

std::unique_ptr<ImageEngine> open_redline_shapes(Precision type) {
  ImageOptions options;
  options.dtype = type;
  options.threads = 2;
  options.max_side = 256;
  auto engine = ImageEngine::open(folder(), options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return engine.ok() ? std::move(engine).value() : nullptr;
}

ImageRequest request_of(const ImageEngine& engine, const Case& c) {
  ImageRequest request = engine.defaults();
  request.prompts = {c.prompt};
  request.width = c.width;
  request.height = c.height;
  request.num_inference_steps = 20;
  request.true_cfg_scale = 1;
  request.max_sequence_length = 64;
  request.init_noise = std::make_shared<FloatArray>(c.noise);
  request.keep_latents = true;
  return request;
}

struct PrecisionCase {
  Precision type;
  const char* name;
  double min_db, max_latent_error;
};

class RedlineShapes : public ::testing::TestWithParam<PrecisionCase> {};

TEST_P(RedlineShapes, DrawsWhatDiffusersDraws) {
  const std::vector<Case> cases = reference_cases();
  ASSERT_EQ(cases.size(), 6u);
  const auto engine = open_redline_shapes(GetParam().type);
  ASSERT_TRUE(engine);
  for (const Case& c : cases) {
    auto result = engine->generate(request_of(*engine, c));
    ASSERT_TRUE(result.ok()) << result.status().message();
    ASSERT_EQ(result->images.size(), 1u);
    EXPECT_GE(psnr(result->images[0], c.picture), GetParam().min_db) << c.prompt;
    std::vector<float> packed(c.latents.size());
    pack_latents(c.shape(), result->latents.data.data(), packed.data());
    double error = 0, size = 0;
    for (size_t i = 0; i < packed.size(); ++i) {
      error += std::pow(static_cast<double>(packed[i]) - c.latents[i], 2);
      size += std::pow(c.latents[i], 2);
    }
    EXPECT_LE(std::sqrt(error / size), GetParam().max_latent_error) << c.prompt;
    EXPECT_EQ(result->step_ms.size(), 20u);
  }
}

// Twenty steps feed their rounding back: float32 has 1e-6 a step; 8 bits of mantissa, or of codes, some 4e-3.
INSTANTIATE_TEST_SUITE_P(Types, RedlineShapes,
                         ::testing::Values(PrecisionCase{Precision::kF32, "f32", 50, 1e-4},
                                           PrecisionCase{Precision::kAuto, "auto", 35, 5e-2},
                                           PrecisionCase{Precision::kBF16, "bf16", 35, 5e-2},
                                           PrecisionCase{Precision::kQ8, "q8", 35, 5e-2},
                                           PrecisionCase{Precision::kQ8_0, "q8_0", 35, 5e-2},
                                           PrecisionCase{Precision::kW8A8, "w8a8", 35, 5e-2}),
                         [](const auto& info) { return std::string(info.param.name); });

// The kernels of GPUs: text encoders, transformer in its three parts, VAE. Bounds as on the CPU.
TEST(RedlineShapes, TheEmulatedDeviceDrawsWhatTheInterpreterDraws) {
  const auto draw = [&](const char* device, Precision type, bool interpret) {
    ImageOptions options;
    options.dtype = type;
    options.device = device;
    options.use_interpreter = interpret;
    options.threads = 2;
    options.max_side = 64;
    options.max_batch = 1;
    auto engine = ImageEngine::open(folder(), options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    if (!engine.ok()) return ImageResult();
    ImageRequest request = (*engine)->defaults();
    request.prompts = {"a large red circle"};
    request.width = request.height = 64;
    request.num_inference_steps = 1;
    request.true_cfg_scale = 1;
    request.max_sequence_length = 16;
    request.seed = 4;
    request.keep_latents = true;
    auto result = (*engine)->generate(request);
    EXPECT_TRUE(result.ok()) << result.status().message();
    return result.ok() ? std::move(result).value() : ImageResult();
  };
  const ImageResult want = draw("auto", Precision::kF32, true);
  ASSERT_EQ(want.images.size(), 1u);
  for (const auto& [type, min_db, max_error] :
       {std::tuple{Precision::kF32, 50.0, 1e-4}, {Precision::kQ8, 35.0, 5e-2}}) {
    const ImageResult got = draw("emu", type, false);
    ASSERT_EQ(got.images.size(), 1u);
    EXPECT_GE(psnr(got.images[0], want.images[0]), min_db) << static_cast<int>(type);
    double error = 0, size = 0;
    ASSERT_EQ(got.latents.data.size(), want.latents.data.size());
    for (size_t i = 0; i < want.latents.data.size(); ++i) {
      error += std::pow(static_cast<double>(got.latents.data[i] - want.latents.data[i]), 2);
      size += std::pow(static_cast<double>(want.latents.data[i]), 2);
    }
    EXPECT_LE(std::sqrt(error / size), max_error) << static_cast<int>(type);
  }
}

// The schedule of every network on a GPU of 132 multiprocessors, at the largest sizes.
TEST(RedlineShapes, SchedulesOfAWholeGpuAreOrdered) {
  ImageOptions options;
  options.max_side = 64;
  options.max_batch = 2;
  // Two text encoders, the denoiser in three parts, a decoder.
  testing::expect_ordered_schedules(folder(), options, 6);
}

// The references see fewer than 256 positions, below which attention takes other weights.
TEST(RedlineShapes, ManyPositionsKeepTheirPrecision) {
  RgbImage exact;
  for (const Precision type : {Precision::kF32, Precision::kBF16, Precision::kQ8}) {
    const auto engine = open_redline_shapes(type);
    ASSERT_TRUE(engine);
    ImageRequest request = engine->defaults();
    request.prompts = {"a large red heart on a meadow"};
    request.width = request.height = 256;
    request.num_inference_steps = 12;
    request.true_cfg_scale = 1;
    request.seed = 1;
    auto result = engine->generate(request);
    ASSERT_TRUE(result.ok()) << result.status().message();
    if (type == Precision::kF32) exact = std::move(result->images[0]);
    else EXPECT_GE(psnr(result->images[0], exact), 35) << static_cast<int>(type);
  }
}

TEST(RedlineShapes, AnyNumberOfThreadsAndAnyBatchGivesTheSameImage) {
  const Case c = reference_cases().at(0);
  std::vector<uint8_t> first;
  for (const int threads : {1, 3}) {
    ImageOptions options;
    options.threads = threads;
    options.max_side = 256;
    auto engine = ImageEngine::open(folder(), options);
    ASSERT_TRUE(engine.ok());
    ImageRequest request = (*engine)->defaults();
    request.prompts = {c.prompt};
    request.num_inference_steps = 3;
    request.seed = 5;
    auto result = (*engine)->generate(request);
    ASSERT_TRUE(result.ok());
    if (first.empty()) first = result->images[0].rgb;
    EXPECT_EQ(result->images[0].rgb, first);
    // The branches of guidance one after the other are the same rows.
    request.split_guidance = true;
    auto split = (*engine)->generate(request);
    ASSERT_TRUE(split.ok());
    EXPECT_GE(psnr(split->images[0], result->images[0]), 40);
  }
}

TEST(RedlineShapes, StepsAreReportedAndAStopIsHonoured) {
  const auto engine = open_redline_shapes(Precision::kAuto);
  ASSERT_TRUE(engine);
  ImageRequest request = engine->defaults();
  request.prompts = {"a red circle", "a blue star"};
  request.true_cfg_scale = 1;
  request.num_inference_steps = 4;
  int64_t steps = 0;
  auto result = engine->generate(request, [&](const ImageProgress& p) {
    EXPECT_EQ(p.step, ++steps);
    EXPECT_EQ(p.steps, 4);
    EXPECT_EQ(p.latents->shape, (std::vector<int64_t>{2, 16, 16, 16}));
    return p.step < 2;
  });
  EXPECT_EQ(steps, 2);
  EXPECT_EQ(result.status().code(), Code::cancelled);
}

TEST(RedlineShapes, PreviewsComeToResembleTheResult) {
  const auto engine = open_redline_shapes(Precision::kAuto);
  ASSERT_TRUE(engine);
  ImageRequest request = engine->defaults();
  request.prompts = {"a large red circle on a blue background", "a blue star"};
  request.seed = 3;
  std::vector<RgbImage> previews[2];
  const auto result = engine->generate(request, [&](const ImageProgress& p) {
    for (int64_t i = 0; i < 2; ++i) {
      auto preview = p.preview(i, 1000);
      EXPECT_TRUE(preview.ok()) << preview.status().message();
      if (preview.ok()) previews[i].push_back(std::move(*preview));
    }
    EXPECT_FALSE(p.preview(2, 64).ok());
    const auto small = p.preview(0, 64);
    EXPECT_TRUE(small.ok() && small->width == 64 && small->height == 64);
    return true;
  });
  ASSERT_TRUE(result.ok()) << result.status().message();
  for (size_t i = 0; i < 2; ++i) {
    const std::vector<RgbImage>& of = previews[i];
    ASSERT_EQ(of.size(), static_cast<size_t>(result->step_ms.size()));
    // The last step of Euler ends at what the model expects there.
    EXPECT_GE(psnr(of.back(), result->images[i]), 45);
    EXPECT_GT(psnr(of[of.size() / 2], result->images[i]), psnr(of.front(), result->images[i]));
  }
  // Asking for previews does not change the result.
  const auto without = engine->generate(request);
  ASSERT_TRUE(without.ok());
  EXPECT_EQ(without->images[0].rgb, result->images[0].rgb);
}

TEST(RedlineShapes, AnImageOfABatchIsThatOfItsSeedAlone) {
  const auto engine = open_redline_shapes(Precision::kF32);
  ASSERT_TRUE(engine);
  RgbImage init{128, 128, std::vector<uint8_t>(128 * 128 * 3, 90)};
  for (const bool from_image : {false, true}) {
    ImageRequest request = engine->defaults();
    request.prompts = {"a red circle"};
    request.num_inference_steps = 3;
    request.seed = 8;
    request.seed_each = true;
    request.batch = 2;
    if (from_image) request.init_image = std::make_shared<RgbImage>(init);
    const auto both = engine->generate(request);
    ASSERT_TRUE(both.ok()) << both.status().message();
    request.batch = 1;
    const auto first = engine->generate(request);
    request.seed = 9;
    const auto second = engine->generate(request);
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_EQ(both->images[0].rgb, first->images[0].rgb);
    EXPECT_EQ(both->images[1].rgb, second->images[0].rgb);
    EXPECT_NE(first->images[0].rgb, second->images[0].rgb);
    EXPECT_EQ(first->solver, "flow-euler");
  }
}

TEST(RedlineShapes, PixelsOutsideTheMaskStayToTheLastBit) {
  const auto engine = open_redline_shapes(Precision::kAuto);
  ASSERT_TRUE(engine);
  RgbImage init{128, 128, {}}, mask{128, 128, std::vector<uint8_t>(128 * 128 * 3)};
  for (size_t i = 0; i < mask.rgb.size(); ++i) {
    init.rgb.push_back(static_cast<uint8_t>(i * 37 % 251));
    mask.rgb[i] = i / 3 % 128 < 64 ? 255 : 0;  // the left half is regenerated
  }
  ImageRequest request = engine->defaults();
  request.prompts = {"a red circle"};
  request.num_inference_steps = 2;
  request.init_image = std::make_shared<RgbImage>(init);
  request.mask = std::make_shared<RgbImage>(mask);
  const auto outside = [&](const RgbImage& image) {
    size_t equal = 0;
    for (size_t i = 0; i < mask.rgb.size(); ++i) equal += mask.rgb[i] == 0 && image.rgb[i] == init.rgb[i];
    return equal;
  };
  const auto blended = engine->generate(request);
  ASSERT_TRUE(blended.ok()) << blended.status().message();
  EXPECT_LT(outside(blended->images[0]), mask.rgb.size() / 2);
  request.keep_unmasked = true;
  const auto kept = engine->generate(request);
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(outside(kept->images[0]), mask.rgb.size() / 2);
  for (size_t i = 0; i < mask.rgb.size(); ++i) {
    if (mask.rgb[i] == 0) continue;
    ASSERT_EQ(kept->images[0].rgb[i], blended->images[0].rgb[i]) << i;
  }
}

TEST(RedlineShapes, BadRequestsSayWhatToDo) {
  const auto engine = open_redline_shapes(Precision::kAuto);
  ASSERT_TRUE(engine);
  const auto message = [&](const std::function<void(ImageRequest&)>& change) {
    ImageRequest request = engine->defaults();
    request.prompts = {"a red circle"};
    request.num_inference_steps = 1;
    change(request);
    const auto result = engine->generate(request);
    return result.ok() ? std::string("no error") : result.status().message();
  };
  EXPECT_THAT(message([](ImageRequest& r) { r.prompts.clear(); }), HasSubstr("there is no prompt"));
  EXPECT_THAT(message([](ImageRequest& r) { r.width = 130; }),
              HasSubstr("width 130 is not a multiple of 16; use 128 or 144"));
  EXPECT_THAT(message([](ImageRequest& r) { r.height = 4096; }), HasSubstr("at most 256x256 pixels"));
  EXPECT_THAT(message([](ImageRequest& r) { r.num_inference_steps = 5000; }), HasSubstr("steps 5000 is outside"));
  EXPECT_THAT(message([](ImageRequest& r) { r.batch = 100; }), HasSubstr("more than max_batch"));
  EXPECT_THAT(message([](ImageRequest& r) { r.solver = "magic"; }), HasSubstr("magic"));
  const FloatArray noise{{1, 16, 8, 8}, std::vector<float>(1024)};
  EXPECT_THAT(message([&](ImageRequest& r) { r.init_noise = std::make_shared<FloatArray>(noise); }),
              HasSubstr("init_noise is [1, 16, 8, 8], the request asks for [1, 16, 16, 16]"));
  FloatArray broken{{1, 16, 16, 16}, std::vector<float>(4096, NAN)};
  EXPECT_THAT(message([&](ImageRequest& r) { r.init_noise = std::make_shared<FloatArray>(broken); }),
              HasSubstr("not finite"));
  RgbImage small{64, 64, std::vector<uint8_t>(64 * 64 * 3)};
  EXPECT_THAT(message([&](ImageRequest& r) { r.mask = std::make_shared<RgbImage>(small); }),
              HasSubstr("a mask needs the image"));
}

}  // namespace
}  // namespace redline
