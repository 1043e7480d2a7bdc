#include "models/checkpoint/precision.h"

#include <fmt/ranges.h>

#include <iterator>

#include "models/checkpoint/convert_weights.h"

namespace redline {

namespace {

constexpr std::string_view kPrecisionNames[] = {"auto", "f32", "bf16", "q8", "q8_0", "w8a8"};
static_assert(static_cast<size_t>(Precision::kW8A8) + 1 == std::size(kPrecisionNames));

}  // namespace

std::string_view precision_name(Precision precision) { return kPrecisionNames[static_cast<size_t>(precision)]; }

Result<Precision> precision_from_name(std::string_view name) {
  for (size_t i = 0; i < std::size(kPrecisionNames); ++i)
    if (kPrecisionNames[i] == name) return static_cast<Precision>(i);
  return invalid_argument("unknown dtype \"{}\"; expected one of {}", name, fmt::join(kPrecisionNames, ", "));
}

std::string WeightConversion::text() const {
  if (type.empty()) return "";
  std::string text =
      changed.empty() ? fmt::format("weights {} as stored", type) : fmt::format("weights {}", fmt::join(changed, ", "));
  if (!kept.empty()) text += fmt::format("; kept {}", fmt::join(kept, ", "));
  if (relative_error > 0) text += fmt::format("; relative error of the weights {:.2g} %", 100 * relative_error);
  return text;
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
