#include "tensor/dtype.h"

#include <cstring>
#include <string>

#include "base/text_distance.h"
#include "tensor/blocks/all.h"

namespace redline {
namespace {

// dtype, name, block elements, block bytes, ggml type number, is_float, is_block, bytes per row besides blocks; in the
// order of DType.
// clang-format off
constexpr DTypeInfo kTypes[] = {
    {DType::kF32, "f32", 1, 4, 0, true, false, 0},
    {DType::kF16, "f16", 1, 2, 1, true, false, 0},
    {DType::kBF16, "bf16", 1, 2, 30, true, false, 0},
    {DType::kI8, "i8", 1, 1, 24, false, false, 0},
    {DType::kI16, "i16", 1, 2, 25, false, false, 0},
    {DType::kI32, "i32", 1, 4, 26, false, false, 0},
    {DType::kI64, "i64", 1, 8, 27, false, false, 0},
    {DType::kF64, "f64", 1, 8, 28, true, false, 0},
    {DType::kU8, "u8", 1, 1, -1, false, false, 0},
    {DType::kU16, "u16", 1, 2, -1, false, false, 0},
    {DType::kU32, "u32", 1, 4, -1, false, false, 0},
    {DType::kU64, "u64", 1, 8, -1, false, false, 0},
    {DType::kBool, "bool", 1, 1, -1, false, false, 0},
#define REDLINE_ROW(F) \
    {blocks::F::kDType, blocks::F::kName, blocks::F::kElements, blocks::F::kBytes, blocks::F::kGgufType, \
     false,             true,            0},
    REDLINE_BLOCK_FORMATS(REDLINE_ROW)
#undef REDLINE_ROW
#define REDLINE_ROW(F) \
    {blocks::F::kDType, blocks::F::kName, blocks::F::kElements, blocks::F::kBytes, -1, \
     false,             true,            blocks::F::kRowBytes},
    REDLINE_ROW_FORMATS(REDLINE_ROW)
#undef REDLINE_ROW
};
// clang-format on

constexpr bool rows_follow_enum() {
  int i = 0;
  for (const DTypeInfo& t : kTypes)
    if (static_cast<int>(t.dtype) != i++) return false;
  return i == kNumDTypes;
}
static_assert(rows_follow_enum());

struct GgufName {
  uint32_t type;
  std::string_view name;
};
// ggml's names of types without a row above (ggml.h, enum ggml_type; ggml refuses "removed" ones too).
constexpr GgufName kOtherGgufTypes[] = {
    {4, "Q4_2 (removed)"},
    {5, "Q4_3 (removed)"},
    {9, "Q8_1"},
    {15, "Q8_K"},
    {16, "IQ2_XXS"},
    {17, "IQ2_XS"},
    {18, "IQ3_XXS"},
    {19, "IQ1_S"},
    {22, "IQ2_S"},
    {29, "IQ1_M"},
    {31, "Q4_0_4_4 (removed)"},
    {32, "Q4_0_4_8 (removed)"},
    {33, "Q4_0_8_8 (removed)"},
    {36, "IQ4_NL_4_4 (removed)"},
    {37, "IQ4_NL_4_8 (removed)"},
    {38, "IQ4_NL_8_8 (removed)"},
    {40, "NVFP4"},
};
// ggml's names of the supported types, as GGUF tools print them; "" for types that ggml has no number for.
// clang-format off
constexpr std::string_view kGgufNames[kNumDTypes] = {
    "F32", "F16", "BF16", "I8", "I16", "I32", "I64", "F64", "", "", "", "", "",
#define REDLINE_NAME(F) #F,
    REDLINE_BLOCK_FORMATS(REDLINE_NAME)
#undef REDLINE_NAME
};
// clang-format on

// Reading and writing rows as float32, by type.
template <class T>
void convert_row(const uint8_t* source, float* target, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) {
    T value;
    std::memcpy(&value, source + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    target[i] = static_cast<float>(value);
  }
}
void unpack_f16(const uint8_t* source, float* target, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) target[i] = blocks::load_half(source + 2 * i);
}
void unpack_bf16(const uint8_t* source, float* target, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) target[i] = bf16_to_f32(blocks::load_u16(source + 2 * i));
}
template <class Format>
void unpack_blocks(const uint8_t* source, float* target, int64_t elements) {
  for (int64_t i = 0; i < elements; i += Format::kElements, source += Format::kBytes)
    blocks::unpack<Format>(source, target + i);
}

void copy_f32(const float* source, int64_t elements, uint8_t* target) {
  std::memcpy(target, source, static_cast<size_t>(elements) * sizeof(float));
}
template <uint16_t (*kRound)(float)>
void round_halves(const float* source, int64_t elements, uint8_t* target) {
  for (int64_t i = 0; i < elements; ++i) {
    const uint16_t rounded = kRound(source[i]);
    std::memcpy(target + 2 * i, &rounded, 2);
  }
}
template <class Format>
void round_blocks(const float* source, int64_t elements, uint8_t* target) {
  for (int64_t i = 0; i < elements; i += Format::kElements, target += Format::kBytes) Format::round(source + i, target);
}

struct RowFunctions {
  void (*unpack)(const uint8_t* source, float* target, int64_t elements);
  void (*round)(const float* source, int64_t elements, uint8_t* target) = nullptr;
};
template <class Format>
constexpr RowFunctions block_rows() {
  if constexpr (requires { &Format::round; }) return {unpack_blocks<Format>, round_blocks<Format>};
  else return {unpack_blocks<Format>};
}
// clang-format off
constexpr RowFunctions kRows[kNumDTypes] = {
    {convert_row<float>, copy_f32},
    {unpack_f16, round_halves<f32_to_f16>},
    {unpack_bf16, round_halves<f32_to_bf16>},
    {convert_row<int8_t>},
    {convert_row<int16_t>},
    {convert_row<int32_t>},
    {convert_row<int64_t>},
    {convert_row<double>},
    {convert_row<uint8_t>},
    {convert_row<uint16_t>},
    {convert_row<uint32_t>},
    {convert_row<uint64_t>},
    {convert_row<uint8_t>},
#define REDLINE_ROW(F) block_rows<blocks::F>(),
    REDLINE_BLOCK_FORMATS(REDLINE_ROW)
#undef REDLINE_ROW
#define REDLINE_ROW(F) {blocks::F::unpack_row, blocks::F::round_row},
    REDLINE_ROW_FORMATS(REDLINE_ROW)
#undef REDLINE_ROW
};
// clang-format on

}  // namespace

const DTypeInfo& dtype_info(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  REDLINE_CHECK(index < std::size(kTypes));
  return kTypes[index];
}

Result<DType> dtype_from_name(std::string_view name) {
  std::string_view names[kNumDTypes];
  for (int i = 0; i < kNumDTypes; ++i) {
    names[i] = kTypes[i].name;
    if (names[i] == name) return kTypes[i].dtype;
  }
  return not_found("unknown type \"{}\"{} (known: {})", name.substr(0, 64), did_you_mean(name, names),
                   fmt::join(names, ", "));
}

const DTypeInfo* dtype_from_gguf(uint32_t gguf_type) {
  for (const DTypeInfo& t : kTypes)
    if (t.gguf_type >= 0 && static_cast<uint32_t>(t.gguf_type) == gguf_type) return &t;
  return nullptr;
}

std::string_view gguf_type_name(uint32_t gguf_type) {
  if (const DTypeInfo* t = dtype_from_gguf(gguf_type)) return kGgufNames[static_cast<size_t>(t->dtype)];
  for (const GgufName& t : kOtherGgufTypes)
    if (t.type == gguf_type) return t.name;
  return {};
}

float f16_to_f32(uint16_t half) { return blocks::half_to_float(half); }

uint16_t f32_to_f16(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u | static_cast<uint16_t>(magnitude >> 13 & 0x1ffu);  // NaN
  // 65520 is halfway between the largest half and the next power of two; ties to even gives infinity.
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;
  if (magnitude < 0x38800000u) {
    // A subnormal half is a multiple of 2^-24: shift the 24-bit significand into place, rounding to nearest even.
    const uint32_t exponent = magnitude >> 23;
    if (exponent < 102) return sign;  // below half of 2^-24: zero
    const uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
    const uint32_t shift = 126 - exponent;
    const uint32_t rest = significand & ((1u << shift) - 1), half = 1u << (shift - 1);
    uint32_t result = significand >> shift;
    result += rest > half || (rest == half && (result & 1));
    return sign | static_cast<uint16_t>(result);
  }
  const uint32_t rounded = magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1);
  return sign | static_cast<uint16_t>(rounded >> 13);
}

uint16_t f32_to_bf16(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

void unpack_row(DType dtype, const void* source, float* target, int64_t elements) {
  REDLINE_CHECK(elements >= 0 && elements % dtype_info(dtype).block_elements == 0);
  if (elements > 0) kRows[static_cast<size_t>(dtype)].unpack(static_cast<const uint8_t*>(source), target, elements);
}

void round_row(DType dtype, const float* source, int64_t elements, void* target) {
  REDLINE_CHECK(elements >= 0 && elements % dtype_info(dtype).block_elements == 0 && can_round_to(dtype));
  kRows[static_cast<size_t>(dtype)].round(source, elements, static_cast<uint8_t*>(target));
}

bool can_round_to(DType dtype) { return kRows[static_cast<size_t>(dtype)].round != nullptr; }

}  // namespace redline
