// Vectors of a packed row panel: 64 bytes are 16 rows x 4 codes, split into parts of the instruction set's vector size.
// Always inlined, no std: see block.h.
#pragma once

#include "tensor/blocks/block.h"

namespace redline::blocks {

static constexpr int kRowPanelRowsOf = 16;  ///< rows of a row panel
static constexpr int kLineBytes = 64;       ///< a unit of 16 rows x 4 codes
#if defined(__AVX512BW__)
static constexpr int kVecBytes = 64;
#elif defined(__AVX2__)
static constexpr int kVecBytes = 32;
#else
static constexpr int kVecBytes = 16;
#endif
static constexpr int kParts = kLineBytes / kVecBytes;  ///< vectors per 64 bytes
static constexpr int kPartRows = kVecBytes / 4;        ///< rows per vector

using Bytes [[gnu::vector_size(kVecBytes)]] = uint8_t;
using Words [[gnu::vector_size(kVecBytes)]] = uint16_t;
using Floats [[gnu::vector_size(kVecBytes)]] = float;
using Ints [[gnu::vector_size(kVecBytes)]] = int32_t;

REDLINE_BLOCK_INLINE Bytes load_part(const uint8_t* line, int part) {
  Bytes bytes;
  __builtin_memcpy(&bytes, line + part * kVecBytes, kVecBytes);
  return bytes;
}
/// Loads bytes with one instruction, however often they are used. When few registers are left, GCC would otherwise make
/// them a memory operand of every use.
REDLINE_BLOCK_INLINE Bytes load_once(const uint8_t* line, int part) {
  Bytes bytes = load_part(line, part);
#if defined(__AVX512BW__)
  asm("" : "+v"(bytes));
#endif
  return bytes;
}
REDLINE_BLOCK_INLINE void store_part(uint8_t* line, int part, Bytes bytes) {
  __builtin_memcpy(line + part * kVecBytes, &bytes, kVecBytes);
}
/// Shifts 16-bit words: bits cross from byte to byte, so the caller masks them.
REDLINE_BLOCK_INLINE Bytes shift_right(Bytes v, int n) { return (Bytes)((Words)v >> n); }
REDLINE_BLOCK_INLINE Bytes shift_left(Bytes v, int n) { return (Bytes)((Words)v << n); }

/// Returns table[index[i]] for indices below 16.
REDLINE_BLOCK_INLINE Bytes look_up_part(const uint8_t* table, Bytes index) {
#if defined(__AVX512BW__)
  const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return (Bytes)_mm512_shuffle_epi8(_mm512_broadcast_i32x4(entries), (__m512i)index);
#elif defined(__AVX2__)
  const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return (Bytes)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(entries), (__m256i)index);
#else
  Bytes found;
  for (int i = 0; i < kVecBytes; ++i) found[i] = table[index[i]];
  return found;
#endif
}

/// Returns part `part` of 16 halves as float32. i8_ints and u8_ints return parts of 16 int8 and 16 uint8 as int32.
REDLINE_BLOCK_INLINE Floats halves_part(const uint8_t* p, int part) {
  p += part * kPartRows * 2;
#if defined(__AVX512BW__)
  return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__AVX2__) && defined(__F16C__)
  return (Floats)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  Floats f;
  for (int i = 0; i < kPartRows; ++i) f[i] = load_half(p + 2 * i);
  return f;
#endif
}
REDLINE_BLOCK_INLINE Ints i8_ints(const uint8_t* p, int part) {
  p += part * kPartRows;
#if defined(__AVX512BW__)
  return (Ints)_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#elif defined(__AVX2__)
  return (Ints)_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
#else
  Ints wide;
  for (int i = 0; i < kPartRows; ++i) wide[i] = static_cast<int8_t>(p[i]);  // NOLINT(bugprone-signed-char-misuse)
  return wide;
#endif
}
/// Returns (v >> kShift) & kMask of 16 uint8.
template <int kShift, int kMask>
REDLINE_BLOCK_INLINE Ints u8_ints(const uint8_t* p, int part) {
  p += part * kPartRows;
  Ints wide;
#if defined(__AVX512BW__)
  wide = (Ints)_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#elif defined(__AVX2__)
  wide = (Ints)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
#else
  for (int i = 0; i < kPartRows; ++i) wide[i] = p[i];
#endif
  if (kShift) wide = wide >> kShift;
  if (kMask != 255) wide = wide & kMask;
  return wide;
}
REDLINE_BLOCK_INLINE Floats ints_to_floats(Ints v) { return __builtin_convertvector(v, Floats); }
/// Returns 2^(e - 128) of 16 exponent bytes; subnormal below e = 2.
REDLINE_BLOCK_INLINE Floats exponents_part(const uint8_t* p, int part) {
  p += part * kPartRows;
  using Bits [[gnu::vector_size(kVecBytes)]] = uint32_t;
  Bits e;
#if defined(__AVX512BW__)
  e = (Bits)_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#elif defined(__AVX2__)
  e = (Bits)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
#else
  for (int i = 0; i < kPartRows; ++i) e[i] = p[i];
#endif
  const Bits is_small = (Bits)(e < 2);
  return (Floats)((is_small & (0x00200000u << e)) | (~is_small & ((e - 1) << 23)));
}

}  // namespace redline::blocks
