// Pictures on their way into latents: what image to image and inpainting begin from.
#pragma once

#include <vector>

#include "diffusion/latents.h"
#include "diffusion/torch_generator.h"
#include "models/image_models.h"
#include "redline/picture.h"
#include "runtime/network.h"

namespace redline {

/// Pixels in -1 .. 1, [height, width, 3]. With `mask`, what it shows white is 0, as inpainting networks were trained.
/// No picture: all 0.
std::vector<float> pixel_values(const RgbPicture* picture, const RgbPicture* mask, int64_t width, int64_t height);

/// Latents [channels, height, width] as the denoiser sees them: means and variances of the autoencoder, one draw of
/// `generator` where it has variances, shifted and scaled. `encode` is the model's encoder, compiled; `layout` says how
/// large the latents are.
Result<std::vector<float>> encode_pixels(const AutoencoderModel& autoencoder, Network& encode,
                                         std::span<const float> pixels, LatentLayout layout, TorchGenerator& generator);

/// A mask at the size of the latents, [height, width]: 1 where the picture is drawn anew (white); of each square its
/// first pixel, as PyTorch's "nearest". No mask: 1 everywhere.
std::vector<float> latent_mask(const RgbPicture* mask, const LatentLayout& layout, int64_t scale);

}  // namespace redline
