// Element types and weight block formats: one row each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"

namespace redline {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kI8,
  kI16,
  kI32,
  kI64,
  kF64,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kIQ3_S,
  kTQ1_0,
  kTQ2_0,
  kMXFP4,
  kW8A8,  ///< int8 with one scale for each output row (tensor/w8a8.h)
};
inline constexpr int kNumDTypes = 25;

/// Properties of a type. A plain type is a block of one element.
struct DTypeInfo {
  DType dtype;
  std::string_view name;   ///< "f32", "q4_k": lower case, as in flags and JSON
  int32_t block_elements;  ///< elements of one row in a block
  int32_t block_bytes;
  int32_t gguf_type;  ///< ggml's type number in GGUF files; -1: not a GGUF type
  bool is_float;      ///< f64, f32, f16, bf16
  bool is_block;      ///< quantized
  int32_t row_bytes;  ///< bytes of a row besides its blocks: a scale per row
};

const DTypeInfo& dtype_info(DType dtype);
/// not_found: no such name; the message suggests the nearest.
Result<DType> dtype_from_name(std::string_view name);
/// nullptr for an unsupported or unknown ggml type number.
const DTypeInfo* dtype_from_gguf(uint32_t gguf_type);
/// ggml's name of a type number, also of unsupported types ("IQ1_S"); "" when ggml has none.
std::string_view gguf_type_name(uint32_t gguf_type);

/// Bytes of one row; `elements` must be a multiple of the block.
inline int64_t row_bytes(DType dtype, int64_t elements) {
  const DTypeInfo& t = dtype_info(dtype);
  return elements / t.block_elements * t.block_bytes + t.row_bytes;
}

float f16_to_f32(uint16_t half);
uint16_t f32_to_f16(float value);  ///< round to nearest even
inline float bf16_to_f32(uint16_t b) { return __builtin_bit_cast(float, static_cast<uint32_t>(b) << 16); }
uint16_t f32_to_bf16(float value);  ///< round to nearest even; NaN stays NaN

/// Unpacks `elements` (whole blocks; for w8a8 one whole row) of any weight type to float32, bit-identical to ggml. For
/// code that is not performance-critical: inspect, tests, the interpreter, packing.
void unpack_row(DType dtype, const void* source, float* target, int64_t elements);

}  // namespace redline
