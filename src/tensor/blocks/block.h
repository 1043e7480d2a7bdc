// Functions and rules that the block formats share. These headers are compiled into the kernels of every instruction
// set, so everything is always-inlined plain C++ without std: a function compiled for AVX-512 must never be emitted
// under a common name.
//
// A format states its layout once, as integers: value = scale[g] * code - min[g], g = element / kGroup. For every
// format here that product and difference, each rounded once to float32, are the operations of ggml's own definition,
// so unpack() below is bit-identical to ggml.
//
//   struct FORMAT {
//     static constexpr DType kDType;
//     static constexpr char kName[];     lower case
//     static constexpr int kGgufType;    ggml's type number
//     static constexpr int kElements;    elements of a block
//     static constexpr int kBytes;       bytes of a block
//     static constexpr int kGroup;       elements that share a scale: 16 or 32
//     static constexpr int kMaxCode;     bound of |code|
//     static constexpr bool kHasMins;    false: mins are all zero and not written
//     static void unpack_i8(const uint8_t* block, int8_t* codes, float* scales, float* mins);
//     static void round(const float* values, uint8_t* block);      only where matrices are converted to it
//     ... and the description of its packed row panels: row_panel.h
//   };
//
// A format whose scales belong to whole rows (REDLINE_ROW_FORMATS) states the layout of a row and of a packed row panel
// itself: see w8a8.h.
//
// Layouts: the GGUF documentation of the ggml project and the gguf Python package's quants module.
#pragma once

#include <cstdint>

#ifdef __F16C__
#include <immintrin.h>
#endif

#include "tensor/dtype.h"

#define REDLINE_BLOCK_INLINE [[gnu::always_inline]] static inline

namespace redline::blocks {

REDLINE_BLOCK_INLINE uint16_t load_u16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | (p[1] << 8)); }

/// Converts every half exactly, including subnormals, even when the CPU flushes float32 subnormals to zero. NaN stays
/// NaN.
REDLINE_BLOCK_INLINE float half_to_float(uint16_t half) {
  const uint32_t magnitude = half & 0x7fffu;
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  uint32_t bits;
  if (magnitude < 0x0400u) {
    bits = __builtin_bit_cast(uint32_t, static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  } else {
    bits = (magnitude << 13) + (magnitude >= 0x7c00u ? 0x70000000u : 0x38000000u);
  }
  return __builtin_bit_cast(float, bits | sign);
}

REDLINE_BLOCK_INLINE float load_half(const uint8_t* p) {
#ifdef __F16C__
  return _cvtsh_ss(load_u16(p));
#else
  return half_to_float(load_u16(p));
#endif
}

// Codes are unpacked 16 bytes at a time with GCC vector types: GCC unrolls a loop over 16 bytes before it can vectorize
// it. Arithmetic is modulo 256, so the stored bytes may be read as int8.
using Bytes16 [[gnu::vector_size(16)]] = uint8_t;

REDLINE_BLOCK_INLINE Bytes16 load_bytes(const uint8_t* p) {
  Bytes16 bytes;
  __builtin_memcpy(&bytes, p, 16);
  return bytes;
}
REDLINE_BLOCK_INLINE void store_bytes(uint8_t* p, Bytes16 bytes) { __builtin_memcpy(p, &bytes, 16); }
REDLINE_BLOCK_INLINE void store_codes(int8_t* codes, Bytes16 bytes) { __builtin_memcpy(codes, &bytes, 16); }

/// Returns 255 in byte i where bit i is set, else 0.
REDLINE_BLOCK_INLINE Bytes16 spread_bits(uint16_t bits) {
  const uint64_t eights[2] = {(bits & 255) * 0x0101010101010101u, (bits >> 8) * 0x0101010101010101u};
  Bytes16 bytes;
  __builtin_memcpy(&bytes, eights, 16);
  const Bytes16 own = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  return (Bytes16)((bytes & own) == own);
}

/// Returns table[index[i]] for indices below 16.
REDLINE_BLOCK_INLINE Bytes16 look_up(const int8_t* table, Bytes16 index) {
#if defined(__SSSE3__) && !defined(__clang__)
  Bytes16 entries;
  __builtin_memcpy(&entries, table, 16);
  return __builtin_shuffle(entries, index);
#else
  Bytes16 found;
  for (int i = 0; i < 16; ++i) found[i] = static_cast<uint8_t>(table[index[i]]);
  return found;
#endif
}

/// Rounds x / scale to an 8-bit code, ties to even.
REDLINE_BLOCK_INLINE uint8_t round_code(float x) {
  const float code = __builtin_nearbyintf(x);
  return static_cast<uint8_t>(static_cast<int8_t>(code < -127.0f ? -127.0f : code > 127.0f ? 127.0f : code));
}

/// Unpacks one block to float32, bit-identical to ggml.
template <class Format>
REDLINE_BLOCK_INLINE void unpack(const uint8_t* block, float* y) {
  constexpr int kGroups = Format::kElements / Format::kGroup;
  int8_t codes[Format::kElements];
  float scales[kGroups], mins[kGroups];
  Format::unpack_i8(block, codes, scales, mins);
  for (int g = 0; g < kGroups; ++g) {
    for (int i = 0; i < Format::kGroup; ++i) {
      const float product = scales[g] * static_cast<float>(codes[g * Format::kGroup + i]);
      y[g * Format::kGroup + i] = Format::kHasMins ? product - mins[g] : product;
    }
  }
}

}  // namespace redline::blocks
