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

/// The type of 8 bits that a pipeline's matrices are quantized to; nullopt: they are not.
std::optional<DType> quantized_type(ImageType type) {
  switch (type) {
    case ImageType::kQ8_0: return DType::kQ8_0;
    case ImageType::kW8A8: return DType::kW8A8;
    default: return std::nullopt;
  }
}

}  // namespace

ImageType resolve_type(ImageType type, const CpuKernels& kernels, const DeviceChoice& device) {
  if (type != ImageType::kQ8) return type;
  return kernels.has_tile_unit && device.kind == DeviceKind::kCpu ? ImageType::kW8A8 : ImageType::kQ8_0;
}

ImageType text_encoder_type(ImageType type) { return quantized_type(type) ? ImageType::kBF16 : type; }

ImageType autoencoder_type(ImageType type) { return type == ImageType::kF32 ? type : ImageType::kBF16; }

Status convert_image_weights(Checkpoint& checkpoint, ImageType type) {
  if (type == ImageType::kF32) return {};
  REDLINE_TRY(round_convolutions(checkpoint));
  if (const std::optional<DType> quantized = quantized_type(type))
    return convert_weights(checkpoint, *quantized, is_quantized_weight);
  if (type == ImageType::kBF16)
    return convert_weights(checkpoint, DType::kBF16, [](const std::string&) { return true; });
  return {};
}

ExecutableOptions image_network_options(ImageType type, const DeviceChoice& device) {
  ExecutableOptions options;
  options.device = device;
  options.exact_f32 = type == ImageType::kF32;
  return options;
}

}  // namespace redline
