// Helpers for rounding x to int8 with AVX-512, shared by the layouts of 8 bits.
#pragma once

#include "kernels/cpu/simd.h"

#if defined(__AVX512F__)

namespace redline::REDLINE_ISA_NS {
namespace {

/// Returns reduce(lanes of v[i]) for i = 0 to 7; reduce takes two vectors.
template <class Reduce>
REDLINE_INLINE __m256i reduce_lanes(const VecI32 (&v)[8], const Reduce& reduce) {
  __m512i pairs[4], fours[2];
  for (int i = 0; i < 4; ++i) {
    const __m512i a = v[2 * i].v, b = v[2 * i + 1].v;
    pairs[i] = reduce(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  }
  for (int i = 0; i < 2; ++i) {
    const __m512i a = pairs[2 * i], b = pairs[2 * i + 1];
    fours[i] = reduce(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
  }
  // Combines 128-bit parts 0 and 2 of both vectors, and parts 1 and 3.
  const __m512i halves =
      reduce(_mm512_shuffle_i32x4(fours[0], fours[1], 0x88), _mm512_shuffle_i32x4(fours[0], fours[1], 0xdd));
  const __m512i whole = reduce(halves, _mm512_shuffle_i32x4(halves, halves, 0xb1));
  return _mm512_castsi512_si256(_mm512_shuffle_i32x4(whole, whole, 0x88));
}
/// Returns the largest lane of each of 8 vectors of nonnegative numbers.
REDLINE_INLINE __m256i largest_lanes(const VecI32 (&v)[8]) {
  return reduce_lanes(
      v, [](__m512i a, __m512i b) __attribute__((always_inline)) { return _mm512_max_epi32(a, b); });
}

/// Returns the permutation that undoes packing, which works within 128-bit parts: dword 4 q + j of a packed vector
/// belongs at 4 j + q.
REDLINE_INLINE __m512i packed_order() {
  return _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
}
/// Packs the int32 vectors wide(0) to wide(3) into 64 int8 codes, in order.
template <class Wide>
REDLINE_INLINE __m512i pack_codes(const Wide& wide) {
  const __m512i packed = _mm512_packs_epi16(_mm512_packs_epi32(wide(0), wide(1)), _mm512_packs_epi32(wide(2), wide(3)));
  return _mm512_permutexvar_epi32(packed_order(), packed);
}

}  // namespace
}  // namespace redline::REDLINE_ISA_NS

#endif
