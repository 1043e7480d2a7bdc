// The types of a network's weights and arithmetic: image and embedding models.
#pragma once

#include <cstdint>
#include <string_view>

#include "redline/status.h"

namespace redline {

/// Types of weights and arithmetic.
enum class Precision : uint8_t {
  kAuto,  ///< weights as stored, the fastest arithmetic for their type, float32 accumulation
  kF32,   ///< float32 throughout
  kBF16,  ///< matrices rounded to bfloat16
  kQ8,    ///< matrices quantized to 8 bits: w8a8 on CPUs with int8 tiles, else q8_0
  kQ8_0,  ///< matrices quantized to 8 bits in blocks of 32
  kW8A8,  ///< matrices quantized to 8 bits with one scale per row; activations are quantized too
};
/// Parses "auto", "f32", "bf16", "q8", "q8_0" or "w8a8". invalid_argument: another name.
Result<Precision> precision_from_name(std::string_view name);

}  // namespace redline
