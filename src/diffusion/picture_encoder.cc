#include "diffusion/picture_encoder.h"

#include <algorithm>
#include <cmath>

namespace redline {
namespace {

constexpr uint8_t kWhite = 128;  // of a mask, from here on

}  // namespace

std::vector<float> pixel_values(const RgbPicture* picture, const RgbPicture* mask, int64_t width, int64_t height) {
  std::vector<float> values(static_cast<size_t>(width * height * 3));
  if (!picture) return values;
  for (size_t i = 0; i < values.size(); ++i)
    if (!mask || mask->rgb[i / 3 * 3] < kWhite) values[i] = static_cast<float>(picture->rgb[i]) / 127.5f - 1;
  return values;
}

Result<std::vector<float>> encode_pixels(const AutoencoderModel& autoencoder, Network& encode,
                                         std::span<const float> pixels, LatentLayout layout,
                                         TorchGenerator& generator) {
  layout.channels = autoencoder.latent_channels;
  layout.patch = 1;
  std::copy(pixels.begin(), pixels.end(), encode.input("picture"));
  SymbolValues sizes;
  sizes[Symbol::kBatch] = 1;
  set_latent_size(sizes, layout.height, layout.width);
  REDLINE_TRY(encode.run(sizes).within("vae"));
  const auto n = static_cast<size_t>(layout.elements());
  const int64_t columns = layout.channels * (autoencoder.has_variance ? 2 : 1);
  const float* moments = encode.output("moments");
  std::vector<float> means(n), z(n);
  unpack_latents(layout, moments, columns, means.data());
  if (autoencoder.has_variance) {
    std::vector<float> log_variances(n);
    unpack_latents(layout, moments + layout.channels, columns, log_variances.data());
    generator.draw(z);
    for (size_t i = 0; i < n; ++i) z[i] = means[i] + std::exp(std::clamp(log_variances[i], -30.0f, 20.0f) / 2) * z[i];
  } else {
    z = means;
  }
  for (float& v : z) v = static_cast<float>((v - autoencoder.shift) * autoencoder.scaling);
  if (!all_finite(z)) return internal("the vae's latents of the picture have values that are not numbers");
  return z;
}

std::vector<float> latent_mask(const RgbPicture* mask, const LatentLayout& layout, int64_t scale) {
  std::vector<float> values(static_cast<size_t>(layout.height * layout.width), 1.0f);
  if (!mask) return values;
  for (int64_t y = 0; y < layout.height; ++y)
    for (int64_t x = 0; x < layout.width; ++x) {
      const auto pixel = static_cast<size_t>((y * mask->width + x) * scale);
      values[static_cast<size_t>(y * layout.width + x)] = mask->rgb[pixel * 3] >= kWhite ? 1.0f : 0.0f;
    }
  return values;
}

}  // namespace redline
