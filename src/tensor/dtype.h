// The table of element types and weight block formats, with one row for each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"

#define REDLINE_FORMAT_NAMES_ONLY
#include "tensor/blocks/all.h"
#undef REDLINE_FORMAT_NAMES_ONLY

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
  kU8,
  kU16,
  kU32,
  kU64,
  kBool,  ///< a byte, 0 or 1
#define REDLINE_NAME(F) k##F,
  REDLINE_BLOCK_FORMATS(REDLINE_NAME)  // tensor/blocks
  REDLINE_ROW_FORMATS(REDLINE_NAME)
#undef REDLINE_NAME
};
#define REDLINE_ONE(F) +1
inline constexpr int kNumDTypes = 13 REDLINE_BLOCK_FORMATS(REDLINE_ONE) REDLINE_ROW_FORMATS(REDLINE_ONE);
#undef REDLINE_ONE

/// Properties of a type. A plain type is a block of one element.
struct DTypeInfo {
  DType dtype;
  std::string_view name;   ///< "f32", "q4_k": lower case, as in flags and JSON
  int32_t block_elements;  ///< elements of one row in a block
  int32_t block_bytes;
  int32_t gguf_type;  ///< ggml's type number in GGUF files; -1: not a GGUF type
  bool is_float;      ///< f64, f32, f16 or bf16
  bool is_block;      ///< a quantized format
  int32_t row_bytes;  ///< bytes of a row after its blocks: its float32 scale; 0: none
};

const DTypeInfo& dtype_info(DType dtype);
/// Finds a type by its lower-case name. not_found: no such name; the message suggests the nearest.
Result<DType> dtype_from_name(std::string_view name);
/// Returns nullptr for an unsupported or unknown ggml type number.
const DTypeInfo* dtype_from_gguf(uint32_t gguf_type);
/// Returns ggml's name of a type number, also of unsupported types ("IQ1_S"); "" when ggml has none.
std::string_view gguf_type_name(uint32_t gguf_type);

/// Returns the bytes of one row; `elements` must be a multiple of the block.
inline int64_t row_bytes(DType dtype, int64_t elements) {
  const DTypeInfo& t = dtype_info(dtype);
  return elements / t.block_elements * t.block_bytes + t.row_bytes;
}

float f16_to_f32(uint16_t half);
uint16_t f32_to_f16(float value);  ///< round to nearest even
inline float bf16_to_f32(uint16_t b) { return __builtin_bit_cast(float, static_cast<uint32_t>(b) << 16); }
uint16_t f32_to_bf16(float value);  ///< round to nearest even; NaN stays NaN

/// Unpacks `elements` (whole blocks; one whole row where a row has a scale) of any type to float32, bit-identical to
/// ggml. For code that is not performance-critical: inspect, tests, the interpreter, packing.
void unpack_row(DType dtype, const void* source, float* target, int64_t elements);
/// Rounds float32 to the nearest values of a type, which must satisfy can_round_to(dtype).
void round_row(DType dtype, const float* source, int64_t elements, void* target);
bool can_round_to(DType dtype);

}  // namespace redline
