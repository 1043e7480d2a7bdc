#include "diffusion/image_weights.h"

#include "models/convert_weights.h"

namespace redline {
namespace {

// Whether a weight is quantized to 8 bits: matrices of blocks. Small, error-sensitive layers stay as they are:
// embedders, modulation and the last projection, whose errors move every token alike.
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
