#include "models/precision.h"

#include <utility>

#include "models/convert_weights.h"

namespace redline {

Result<Precision> precision_from_name(std::string_view name) {
  constexpr std::pair<std::string_view, Precision> kNames[] = {{"auto", Precision::kAuto}, {"f32", Precision::kF32},
                                                               {"bf16", Precision::kBF16}, {"q8", Precision::kQ8},
                                                               {"q8_0", Precision::kQ8_0}, {"w8a8", Precision::kW8A8}};
  for (const auto& [known, precision] : kNames)
    if (known == name) return precision;
  return invalid_argument("unknown dtype \"{}\"; expected one of auto, f32, bf16, q8, q8_0, w8a8", name);
}

Precision resolve_precision(Precision precision, const CpuKernels& kernels, const DeviceChoice& device) {
  if (precision != Precision::kQ8) return precision;
  return kernels.has_tile_unit && device.kind == DeviceKind::kCpu ? Precision::kW8A8 : Precision::kQ8_0;
}

std::optional<DType> quantized_type(Precision precision) {
  switch (precision) {
    case Precision::kQ8_0: return DType::kQ8_0;
    case Precision::kW8A8: return DType::kW8A8;
    default: return std::nullopt;
  }
}

Status convert_matrices(Checkpoint& checkpoint, Precision precision,
                        const std::function<bool(const std::string&)>& is_quantized) {
  if (const std::optional<DType> quantized = quantized_type(precision))
    return convert_weights(checkpoint, *quantized, is_quantized);
  if (precision == Precision::kBF16)
    return convert_weights(checkpoint, DType::kBF16, [](const std::string&) { return true; });
  return {};
}

}  // namespace redline
