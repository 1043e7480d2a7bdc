// Golden autoencoders: runs have "sizes" [batch, height, width] of the latent, "latents" -> "image" of the decoder,
// and "image" -> "moments" (or the means) of the encoder.
#pragma once

#include "models/image/image_models.h"
#include "support/image_golden.h"
#include "support/image_sizes.h"

namespace redline::testing {

using BuildAutoencoder = Result<AutoencoderModel> (*)(const Checkpoint&);

inline SymbolValues latent_sizes(int64_t batch, int64_t height, int64_t width) {
  SymbolValues sizes;
  sizes[Symbol::kBatch] = batch;
  set_image_size(sizes, height, width);
  return sizes;
}

/// Returns the result of `input`: "latents" go through the decoder, an "image" through the encoder.
inline std::vector<float> run_autoencoder(const ImageGolden& golden, BuildAutoencoder build, const std::string& run,
                                          const std::string& input, NetworkMode mode, int threads) {
  auto model = build(golden.checkpoint);
  EXPECT_TRUE(model.ok()) << model.status().message();
  if (!model.ok()) return {};
  const auto& size = golden.find(run, "sizes")->values;
  const SymbolValues sizes =
      latent_sizes(static_cast<int64_t>(size[0]), static_cast<int64_t>(size[1]), static_cast<int64_t>(size[2]));
  SymbolValues bounds = sizes;  // larger than needed, as an engine's are
  bounds[Symbol::kBatch] += 1;
  bounds[kWidth] += 2;
  const bool decodes = input == "latents";
  const auto runtime = make_runtime(threads);
  Executable network = make_network(std::move(decodes ? model->decode : model->encode), bounds, mode, *runtime);
  fill_inputs(network, golden, run, {input});
  const Status status = network.run(sizes);
  EXPECT_TRUE(status.ok()) << status.message();
  const NpyArray* in = golden.find(run, input);
  const auto scale = static_cast<int64_t>(model->scale * model->scale);
  const int64_t rows = static_cast<int64_t>(in->values.size()) / (decodes ? model->latent_channels : 3);
  const float* out = network.output(decodes ? "image" : "moments");
  const int64_t count =
      decodes ? rows * scale * 3 : rows / scale * model->latent_channels * (model->has_variance ? 2 : 1);
  return {out, out + count};
}

inline void expect_like_autoencoder(const ImageGolden& golden, BuildAutoencoder build) {
  ASSERT_FALSE(golden.arrays.empty());
  for (const std::string& run : golden.runs())
    for (const NetworkMode mode : network_modes())
      for (const auto& [input, output] : {std::pair{"latents", "image"}, {"image", "moments"}}) {
        // `auto` rounds activations to bfloat16 (2^-9 each) before every product: some twenty in a row, whose errors
        // add up as a random walk, and norms of a few values make the most of them.
        const double bound = rounds(mode) ? 5e-2 : 1e-4;
        const auto got = run_autoencoder(golden, build, run, input, mode, 2);
        const NpyArray* expected = golden.find(run, output);
        ASSERT_EQ(got.size(), expected->values.size());
        EXPECT_LE(relative_error(got, *expected), bound) << run << " " << network_mode_name(mode) << ", " << output;
      }
}

}  // namespace redline::testing
