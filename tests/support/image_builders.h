// The builders of image networks, by name, from the registry.
#pragma once

#include "models/image/image_registry.h"

namespace redline::testing {

inline Result<DenoiserModel> build_denoiser(std::string_view class_name, const Checkpoint& checkpoint,
                                            BlockSplit blocks) {
  REDLINE_ASSIGN(const DenoiserRow* row, find_denoiser(class_name));
  return row->build(checkpoint, blocks);
}
inline Result<DenoiserModel> build_flux(const Checkpoint& checkpoint, BlockSplit blocks) {
  return build_denoiser("FluxTransformer2DModel", checkpoint, blocks);
}
inline Result<DenoiserModel> build_unet(const Checkpoint& checkpoint) {
  return build_denoiser("UNet2DConditionModel", checkpoint, 0);
}

inline Result<TextEncoderModel> build_text_encoder(std::string_view class_name, const Checkpoint& checkpoint) {
  REDLINE_ASSIGN(const TextEncoderRow* row, find_text_encoder(class_name));
  return row->build(checkpoint);
}
inline Result<TextEncoderModel> build_clip_text(const Checkpoint& checkpoint) {
  return build_text_encoder("CLIPTextModel", checkpoint);
}
inline Result<TextEncoderModel> build_t5_encoder(const Checkpoint& checkpoint) {
  return build_text_encoder("T5EncoderModel", checkpoint);
}

inline Result<AutoencoderModel> build_autoencoder(std::string_view class_name, const Checkpoint& checkpoint) {
  REDLINE_ASSIGN(const AutoencoderRow* row, find_autoencoder(class_name));
  return row->build(checkpoint);
}
inline Result<AutoencoderModel> build_autoencoder_kl(const Checkpoint& checkpoint) {
  return build_autoencoder("AutoencoderKL", checkpoint);
}
inline Result<AutoencoderModel> build_autoencoder_tiny(const Checkpoint& checkpoint) {
  return build_autoencoder("AutoencoderTiny", checkpoint);
}

}  // namespace redline::testing
