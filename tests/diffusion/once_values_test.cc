// What a denoiser computes once, over the tiny random networks of tests/golden/image.
#include "diffusion/once_values.h"

#include <random>

#include "diffusion/denoiser.h"
#include "support/image_golden.h"

namespace redline {
namespace {

constexpr int64_t kSide = 4, kText = 5;

struct Made {
  std::unique_ptr<WorkerTeam> team = testing::make_team(2);
  testing::ImageGolden golden;
  std::unique_ptr<Denoiser> denoiser;
};

Made make(const std::string& name) {
  Made made;
  made.golden = testing::load_image_golden(name);
  auto model = name.rfind("unet", 0) == 0     ? build_unet(made.golden.checkpoint)
               : name.rfind("pixart", 0) == 0 ? build_pixart(made.golden.checkpoint, 0)
               : name.rfind("sd3", 0) == 0    ? build_sd3(made.golden.checkpoint, 0)
                                              : build_flux(made.golden.checkpoint, 0);
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  if (!model.ok()) return made;
  NetworkOptions options;
  options.compile.kernels = cpu_kernels().value();
  options.compile.exact_f32 = true;
  options.compile.kv_format = KvFormat::kF32;
  options.compile.bounds[Symbol::kBatch] = 6;
  options.compile.bounds[Symbol::kTextTokens] = 8;
  options.compile.bounds[Symbol::kImageTokens] = 64;
  set_latent_size(options.compile.bounds, 16, 16);
  auto denoiser = Denoiser::make(std::move(*model), options, 0, *made.team);
  EXPECT_TRUE(denoiser.ok()) << denoiser.status().to_string();
  if (denoiser.ok()) made.denoiser = std::move(*denoiser);
  return made;
}

void append(std::vector<float>& to, int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < count; ++i) to.push_back(normal(random));
}

DenoiserBatch batch_of(const DenoiserModel& model, const std::vector<uint32_t>& pictures) {
  DenoiserBatch batch;
  batch.pictures = batch.rows = std::ssize(pictures);
  batch.layout = {model.latent_channels, kSide * model.patch, kSide * model.patch, model.patch};
  batch.text_tokens = kText;
  for (const uint32_t picture : pictures) {
    append(batch.conditions["text"], kText * model.text_width, picture + 1000);
    append(batch.conditions["pooled"], model.pooled_width, picture + 2000);
    append(batch.conditions["time_ids"], model.num_time_ids, picture + 3000);
    batch.conditions["guidance"].push_back(3.5F);
    batch.integer_conditions["key_lengths"].push_back(static_cast<int32_t>(kText));
  }
  return batch;
}

const std::vector<std::string> kNetworks = {"flux_dev", "sd3", "pixart_sigma", "unet_sd15", "unet_sdxl"};

TEST(OnceValues, StepsReadNeitherTextNorTimestep) {
  for (const std::string& name : kNetworks) {
    const Made made = make(name);
    ASSERT_TRUE(made.denoiser);
    const auto networks = made.denoiser->networks();
    for (size_t part = 0; part < 3; ++part)
      for (const char* input : {"text", "timestep", "guidance", "pooled", "carry.conditioning", "carry.table"})
        EXPECT_FALSE(networks[part]->has_input(input)) << name << ", part " << part << ": " << input;
    EXPECT_TRUE(networks[3]->has_input("text")) << name;
    EXPECT_TRUE(networks[4]->has_input("timestep")) << name;
  }
}

TEST(OnceValues, AnyRowsAtAnyTimestepAreThoseOfThatPictureAlone) {
  for (const std::string& name : kNetworks) {
    Made made = make(name);
    ASSERT_TRUE(made.denoiser);
    Denoiser& denoiser = *made.denoiser;
    const std::vector<uint32_t> pictures = {1, 2, 3, 4};
    const std::vector<double> timesteps = {900, 700, 650, 200, 100, 1};
    const auto latents_of = [&](uint32_t picture, double timestep) {
      std::vector<float> x;
      append(x, denoiser.batch().layout.elements(), picture * 1000 + static_cast<uint32_t>(timestep));
      return x;
    };
    // Each alone, nothing announced.
    std::map<std::pair<uint32_t, double>, std::vector<float>> alone;
    for (const uint32_t picture : pictures) {
      ASSERT_TRUE(denoiser.begin(batch_of(denoiser.model(), {picture})).ok());
      for (const double timestep : timesteps) {
        const std::vector<float> x = latents_of(picture, timestep);
        std::vector<float>& out = alone[{picture, timestep}];
        out.resize(x.size());
        const int64_t row[] = {0};
        const Status done = denoiser.evaluate(row, x, timestep, out);
        ASSERT_TRUE(done.ok()) << name << ": " << done.to_string();
      }
    }
    DenoiserBatch batch = batch_of(denoiser.model(), pictures);
    batch.timesteps = {900, 700, 650, 200, 1};  // 100 comes unannounced
    ASSERT_TRUE(denoiser.begin(std::move(batch)).ok());
    const std::vector<std::vector<int64_t>> rows = {{0, 1, 2, 3}, {1, 2}, {0, 3}, {3}, {0, 2, 3}, {2}};
    for (size_t t = 0; t < timesteps.size(); ++t) {
      std::vector<float> x;
      for (const uint32_t picture : pictures) {
        const std::vector<float> one = latents_of(picture, timesteps[t]);
        x.insert(x.end(), one.begin(), one.end());
      }
      std::vector<float> out(x.size(), -99.0F);
      ASSERT_TRUE(denoiser.evaluate(rows[t], x, timesteps[t], out).ok());
      const auto n = static_cast<int64_t>(x.size() / pictures.size());
      for (const int64_t row : rows[t]) {
        const std::vector<float> got(out.begin() + row * n, out.begin() + (row + 1) * n);
        EXPECT_EQ(got, (alone[{pictures[static_cast<size_t>(row)], timesteps[t]}]))
            << name << ", row " << row << " at " << timesteps[t];
      }
    }
  }
}

TEST(OnceValues, MoreRowsThanTheBoundAreRefused) {
  Made made = make("unet_sd15");
  ASSERT_TRUE(made.denoiser);
  DenoiserBatch batch = batch_of(made.denoiser->model(), {1, 2, 3, 4, 5, 6, 7});
  batch.timesteps = {10};
  const Status status = made.denoiser->begin(std::move(batch));
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_NE(status.to_string().find("batch is 7"), std::string::npos) << status.to_string();
}

}  // namespace
}  // namespace redline
