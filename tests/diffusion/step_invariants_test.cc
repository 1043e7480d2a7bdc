// Tests of the values that a denoiser computes once, over the tiny random networks of tests/golden/image.
#include "diffusion/step_invariants.h"

#include "support/denoiser_harness.h"

namespace redline {
namespace {

using testing::GoldenDenoiser, testing::make_denoiser, testing::random_batch;

const std::vector<std::string> kNetworks = {"flux_dev", "sd3", "pixart_sigma", "unet_sd15", "unet_sdxl"};

TEST(StepInvariants, StepsReadNeitherTextNorTimestep) {
  for (const std::string& name : kNetworks) {
    const GoldenDenoiser made = make_denoiser(name);
    ASSERT_TRUE(made.denoiser);
    const auto networks = made.denoiser->networks();
    for (size_t part = 0; part < 3; ++part)
      for (const char* input : {"text", "timestep", "guidance", "pooled", "carry.conditioning", "carry.table"})
        EXPECT_FALSE(networks[part]->has_input(input)) << name << ", part " << part << ": " << input;
    for (const char* input : {"text", "guidance", "pooled"})  // nor as what stays for the run
      EXPECT_FALSE(networks[0]->has_input(std::string("external.in.") + input)) << name << ": " << input;
    EXPECT_TRUE(networks[3]->has_input("text")) << name;
    EXPECT_TRUE(networks[4]->has_input("timestep")) << name;
  }
}

TEST(StepInvariants, AnyRowsAtAnyTimestepAreThoseOfThatImageAlone) {
  for (const std::string& name : kNetworks) {
    GoldenDenoiser made = make_denoiser(name);
    ASSERT_TRUE(made.denoiser);
    Denoiser& denoiser = *made.denoiser;
    const std::vector<uint32_t> pictures = {1, 2, 3, 4};
    const std::vector<double> timesteps = {900, 700, 650, 200, 100, 1};
    const auto latents_of = [&](uint32_t picture, double timestep) {
      std::vector<float> x;
      testing::append_normal(x, denoiser.batch().latents.elements(), picture * 1000 + static_cast<uint32_t>(timestep));
      return x;
    };
    // Each alone, nothing announced.
    std::map<std::pair<uint32_t, double>, std::vector<float>> alone;
    for (const uint32_t picture : pictures) {
      ASSERT_TRUE(denoiser.begin(random_batch(denoiser.model(), {picture})).ok());
      for (const double timestep : timesteps) {
        const std::vector<float> x = latents_of(picture, timestep);
        std::vector<float>& out = alone[{picture, timestep}];
        out.resize(x.size());
        const int64_t row[] = {0};
        const Status done = denoiser.evaluate(row, x, timestep, out);
        ASSERT_TRUE(done.ok()) << name << ": " << done.to_string();
      }
    }
    DenoiserBatch batch = random_batch(denoiser.model(), pictures);
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

TEST(StepInvariants, MoreRowsThanTheBoundAreRefused) {
  GoldenDenoiser made = make_denoiser("unet_sd15", 0, 6);
  ASSERT_TRUE(made.denoiser);
  DenoiserBatch batch = random_batch(made.denoiser->model(), {1, 2, 3, 4, 5, 6, 7});
  batch.timesteps = {10};
  const Status status = made.denoiser->begin(std::move(batch));
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_NE(status.to_string().find("batch is 7"), std::string::npos) << status.to_string();
}

}  // namespace
}  // namespace redline
