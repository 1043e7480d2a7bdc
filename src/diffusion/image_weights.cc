#include "diffusion/image_weights.h"

#include "models/checkpoint/convert_weights.h"

namespace redline {
namespace {

// Returns true if a weight is quantized to 8 bits: a matrix of a block. Small, error-sensitive layers keep their type:
// embedders, modulation and the last projection, whose errors affect all tokens in the same way.
bool is_quantized_weight(const std::string& name) {
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  const bool in_block = has("blocks.") || has(".block.") || has("mid_block.");
  return in_block && name.ends_with(".weight") && !has("norm");
}

}  // namespace

Precision text_encoder_precision(Precision type) { return quantized_type(type) ? Precision::kBF16 : type; }

Precision autoencoder_precision(Precision type) { return type == Precision::kF32 ? type : Precision::kBF16; }

Status convert_image_weights(Checkpoint& checkpoint, Precision type) {
  if (type == Precision::kF32) return {};
  REDLINE_TRY(round_convolutions(checkpoint));
  return convert_matrices(checkpoint, type, is_quantized_weight);
}

ExecutableOptions image_network_options(Precision type, const DeviceChoice& device) {
  ExecutableOptions options;
  options.device = device;
  options.exact_f32 = type == Precision::kF32;
  return options;
}

}  // namespace redline
