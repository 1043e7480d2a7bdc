// The compiled autoencoder of a pipeline: encodes images to latents, for image to image and inpainting, and decodes
// latents to images or to the frames of clips.
#pragma once

#include <span>
#include <vector>

#include "diffusion/latents.h"
#include "diffusion/torch_generator.h"
#include "models/image/image_models.h"
#include "redline/rgb_image.h"
#include "runtime/executable.h"

namespace redline {

class VaeCodec {
 public:
  VaeCodec() = default;
  /// `runtime` must outlive the codec. `max_side`: maximum width and height of an image in pixels. `tile`: as
  /// ImageOptions::vae_tile.
  static Result<VaeCodec> make(AutoencoderModel model, const ExecutableOptions& options, int64_t max_side, int64_t tile,
                               RuntimeResources& runtime);

  int64_t latent_channels() const { return model_.latent_channels; }
  /// Returns the image pixels per latent pixel, in each direction.
  int64_t scale() const { return model_.scale; }
  /// Returns the autoencoder, whose graphs are empty.
  const AutoencoderModel& model() const { return model_; }

  /// Encodes `pixels`, as pixel_values() gives them, to shifted and scaled latents for the denoiser,
  /// [generators.count(), channels, height, width]. If the encoder gives a variance, they are sampled from its
  /// distribution with one draw of `generators`.
  Result<std::vector<float>> encode(std::span<const float> pixels, LatentShape shape, TorchGenerators& generators);
  /// Decodes one image or clip from its latents, as the solver gives them. Returns its frames; an image has one.
  Result<std::vector<RgbImage>> decode(std::span<const float> latents, LatentShape shape);
  /// Decodes without shift and scale. `z`: the autoencoder's latents, planes [channels, frames, height, width]. Returns
  /// rows of pixels [decoded frames * height * width * scale^2, 3] in -1 .. 1, valid until the next call.
  Result<std::span<const float>> decode_rows(std::span<const float> z, LatentShape shape);
  /// Encodes rows of pixels in -1 .. 1 to rows of moments [frames * height * width, moment_columns()], valid until the
  /// next call. `shape`: the shape of the latents.
  Result<std::span<const float>> encode_rows(std::span<const float> pixels, const LatentShape& shape);
  int64_t moment_columns() const { return model_.latent_channels * (model_.has_variance ? 2 : 1); }
  /// Returns the side, in pixels, of the tiles in which decode() decodes latents of this size; 0: the whole image at
  /// once.
  int64_t tile_pixels(const LatentShape& shape) const { return latent_tile(shape) * scale(); }

  std::vector<const Executable*> networks() const { return {&decode_, &encode_}; }
  const Executable& decoder() const { return decode_; }

 private:
  int64_t latent_tile(const LatentShape& shape) const;

  AutoencoderModel model_;  ///< description of the model, whose graphs have been moved to the networks
  Executable decode_, encode_;
  int64_t max_side_ = 0, max_frames_ = 1, tile_ = 0;
  std::vector<float> blended_;  ///< buffer of decode_rows() with tiles
};

/// Returns an image as pixels in -1 .. 1, [height, width, 3]. With a gray `mask`, pixels where it is white are 0, as in
/// the training of inpainting networks. No image: all 0.
std::vector<float> pixel_values(const RgbImage* image, const RgbImage* mask, int64_t width, int64_t height);

/// Returns a gray mask at the size of the latents, [height, width]: 1 where it is white and the image is regenerated.
/// Each value is that of the first pixel of its square, as with PyTorch's "nearest". No mask: 1 everywhere.
std::vector<float> latent_mask(const RgbImage* mask, const LatentShape& shape, int64_t scale);

}  // namespace redline
