#include "diffusion/vae_codec.h"

#include <algorithm>
#include <cmath>

#include "diffusion/vae_tiles.h"
#include "media/mask.h"

namespace redline {
namespace {

// maximum bytes of the decoder's arena; larger images are decoded in tiles
constexpr double kMaxBytes = 4.0 * (1 << 30);
constexpr int64_t kMinTile = 32;  // latent pixels; norms and attention of smaller tiles cover too little of the image

}  // namespace

Result<VaeCodec> VaeCodec::make(AutoencoderModel model, const ExecutableOptions& options, int64_t max_side,
                                int64_t tile, RuntimeResources& runtime) {
  VaeCodec codec;
  codec.model_ = std::move(model);
  codec.max_side_ = max_side;
  codec.tile_ = tile;
  if (codec.model_.has_frames()) codec.max_frames_ = codec.model_.grid.extent(0).eval(options.bounds);
  REDLINE_ASSIGN(codec.decode_, Executable::make(std::move(codec.model_.decode), options, runtime));
  REDLINE_ASSIGN(codec.encode_, Executable::make(std::move(codec.model_.encode), options, runtime));
  return codec;
}

Result<std::span<const float>> VaeCodec::encode_rows(std::span<const float> pixels, const LatentShape& shape) {
  std::copy(pixels.begin(), pixels.end(), encode_.input("image"));
  SymbolValues sizes;
  sizes[Symbol::kBatch] = 1;
  set_extents(model_.grid, shape, sizes);
  REDLINE_TRY(encode_.run(sizes).within("vae"));
  const float* rows = encode_.output("moments");
  return std::span(rows, static_cast<size_t>(shape.pixels() * moment_columns()));
}

Result<std::vector<float>> VaeCodec::encode(std::span<const float> pixels, LatentShape shape,
                                            TorchGenerators& generators) {
  shape.channels = model_.latent_channels;
  shape.patch = 1;
  const auto n = static_cast<size_t>(shape.elements());
  const int64_t columns = moment_columns();
  REDLINE_ASSIGN(const std::span<const float> rows, encode_rows(pixels, shape));
  const float* moments = rows.data();
  std::vector<float> means(n), z(n * static_cast<size_t>(generators.count()));
  unpack_latents(shape, moments, columns, means.data());
  if (model_.has_variance) {
    std::vector<float> log_variances(n);
    unpack_latents(shape, moments + shape.channels, columns, log_variances.data());
    generators.draw(z);
    for (size_t i = 0; i < z.size(); ++i)
      z[i] = means[i % n] + std::exp(std::clamp(log_variances[i % n], -30.0f, 20.0f) / 2) * z[i];
  } else {
    for (size_t i = 0; i < z.size(); ++i) z[i] = means[i % n];
  }
  for (size_t i = 0; i < z.size(); ++i) {
    const size_t c = i % n / static_cast<size_t>(shape.pixels());
    z[i] = static_cast<float>((z[i] - model_.shift[c]) * model_.scaling[c]);
  }
  if (!all_finite(z)) return internal("the vae's latents of the image are not finite");
  return z;
}

int64_t VaeCodec::latent_tile(const LatentShape& shape) const {
  if (tile_ < 0) return 0;
  int64_t tile = tile_ / model_.scale;
  if (tile_ == 0) {
    if (!decode_.program()) return 0;
    // Nearly all of the arena grows with the number of pixels.
    const int64_t max_side = max_side_ / model_.scale;
    const double bytes = static_cast<double>(decode_.program()->arena_plan.bytes) /
                         static_cast<double>(max_frames_ * max_side * max_side) * static_cast<double>(shape.frames);
    if (bytes * static_cast<double>(shape.height * shape.width) <= kMaxBytes) return 0;
    tile = std::max(kMinTile, static_cast<int64_t>(std::sqrt(kMaxBytes / bytes)));
  }
  return tile < std::max(shape.height, shape.width) ? tile : 0;
}

Result<std::span<const float>> VaeCodec::decode_rows(std::span<const float> z, LatentShape shape) {
  shape.patch = 1;
  if (const int64_t tile = latent_tile(shape); tile > 0) {
    REDLINE_TRY(decode_in_tiles(decode_, model_, shape, z, tile, blended_).within("vae"));
    return std::span<const float>(blended_);
  }
  SymbolValues sizes;
  sizes[Symbol::kBatch] = 1;
  set_extents(model_.grid, shape, sizes);
  pack_latents(shape, z.data(), decode_.input("latents"));
  REDLINE_TRY(decode_.run(sizes).within("vae"));
  const int64_t pixels = model_.decoded_frames(shape.frames) * shape.height * shape.width * model_.scale * model_.scale;
  return std::span(decode_.output("image"), static_cast<size_t>(pixels) * 3);
}

Result<std::vector<RgbImage>> VaeCodec::decode(std::span<const float> latents, LatentShape shape) {
  std::vector<float> z(latents.size());
  for (size_t i = 0; i < z.size(); ++i) {
    const size_t c = i / static_cast<size_t>(shape.pixels());
    z[i] = static_cast<float>(latents[i] / model_.scaling[c] + model_.shift[c]);
  }
  REDLINE_ASSIGN(const std::span<const float> rgb, decode_rows(z, shape));
  if (!all_finite(rgb)) return internal("the vae's output is not finite; try --dtype f32");
  RgbImage blank;
  blank.width = shape.width * model_.scale;
  blank.height = shape.height * model_.scale;
  blank.rgb.resize(static_cast<size_t>(blank.width * blank.height * 3));
  std::vector<RgbImage> frames(static_cast<size_t>(model_.decoded_frames(shape.frames)), blank);
  const float* value = rgb.data();
  for (RgbImage& frame : frames)
    for (uint8_t& byte : frame.rgb)
      byte = static_cast<uint8_t>(std::nearbyint(std::clamp(*value++ * 0.5f + 0.5f, 0.0f, 1.0f) * 255.0f));
  return frames;
}

std::vector<float> pixel_values(const RgbImage* image, const RgbImage* mask, int64_t width, int64_t height) {
  std::vector<float> values(static_cast<size_t>(width * height * 3));
  if (!image) return values;
  for (size_t i = 0; i < values.size(); ++i)
    if (!mask || mask->rgb[i] < kWhiteMask) values[i] = static_cast<float>(image->rgb[i]) / 127.5f - 1;
  return values;
}

std::vector<float> latent_mask(const RgbImage* mask, const LatentShape& shape, int64_t scale) {
  std::vector<float> values(static_cast<size_t>(shape.height * shape.width), 1.0f);
  if (!mask) return values;
  for (int64_t y = 0; y < shape.height; ++y)
    for (int64_t x = 0; x < shape.width; ++x) {
      const auto pixel = static_cast<size_t>((y * mask->width + x) * scale);
      values[static_cast<size_t>(y * shape.width + x)] = mask->rgb[pixel * 3] >= kWhiteMask ? 1.0f : 0.0f;
    }
  return values;
}

}  // namespace redline
