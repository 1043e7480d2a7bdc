// Denoisers over the tiny random networks of tests/golden/image, and batches of random conditions for them.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "diffusion/denoiser.h"
#include "support/image_builders.h"
#include "support/image_golden.h"
#include "support/image_sizes.h"

namespace redline::testing {

/// A denoiser over a golden checkpoint, with its runtime.
struct GoldenDenoiser {
  std::unique_ptr<RuntimeResources> runtime = make_runtime(2);
  ImageGolden golden;
  BlockSplit blocks = {0};
  std::unique_ptr<Denoiser> denoiser;
};

/// For up to `max_rows` rows. The denoiser is null after a failure, which is reported to the test.
inline GoldenDenoiser make_denoiser(const std::string& name, BlockSplit blocks = 0, int64_t max_rows = 8,
                                    NetworkMode mode = NetworkMode::kF32) {
  GoldenDenoiser made;
  made.golden = load_image_golden(name);
  made.blocks = blocks;
  const auto& class_name = made.golden.checkpoint.config["_class_name"];
  auto model = build_denoiser(class_name.get<std::string>(), made.golden.checkpoint, blocks);
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  if (!model.ok()) return made;
  ExecutableOptions options = network_options(mode);
  options.bounds[Symbol::kBatch] = max_rows;
  options.bounds[Symbol::kTextTokens] = 8;
  options.bounds[Symbol::kImageTokens] = 64;
  set_image_size(options.bounds, 16, 16);
  auto denoiser = Denoiser::make(std::move(*model), options, 0, *made.runtime);
  EXPECT_TRUE(denoiser.ok()) << denoiser.status().to_string();
  if (denoiser.ok()) made.denoiser = std::move(*denoiser);
  return made;
}

/// Standard normal values, the same for the same seed whatever stands before them.
inline void append_normal(std::vector<float>& to, int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < count; ++i) to.push_back(normal(random));
}

/// Images by number, each with `branches` of guidance; a branch of an image has the same values in any batch.
inline DenoiserBatch random_batch(const DenoiserModel& model, const std::vector<uint32_t>& pictures,
                                  int64_t branches = 1) {
  constexpr int64_t kSide = 4, kText = 5;
  DenoiserBatch batch;
  batch.images = std::ssize(pictures);
  batch.rows = batch.images * branches;
  batch.latents = {model.latent_channels, kSide * model.patch, kSide * model.patch, model.patch};
  batch.text_tokens = kText;
  for (int64_t branch = 0; branch < branches; ++branch)
    for (const uint32_t picture : pictures) {
      const uint32_t seed = 10 * picture + static_cast<uint32_t>(branch);
      append_normal(batch.conditions["text"], kText * model.text_width, seed + 1000);
      append_normal(batch.conditions["pooled"], model.pooled_width, seed + 2000);
      append_normal(batch.conditions["time_ids"], model.num_time_ids, seed + 3000);
      batch.conditions["guidance"].push_back(3.5F);
      batch.integer_conditions["key_lengths"].push_back(static_cast<int32_t>(kText));
    }
  return batch;
}

}  // namespace redline::testing
