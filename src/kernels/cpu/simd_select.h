// Vectors beyond simd.h for the kernels of logits: lanes chosen by a comparison, sums of lanes of integers, and a
// multiply-add that every instruction set rounds alike. The few intrinsics are of no use elsewhere, so they are not in
// the sets' .inc files.
#pragma once

#include "kernels/cpu/simd.h"

namespace redline::REDLINE_ISA_NS {

struct LaneSums {
  int32_t a, b;
};

#if defined(__AVX512F__)

using Lanes = __mmask16;
REDLINE_INLINE Lanes at_least(VecF32 a, VecF32 b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ); }
REDLINE_INLINE Lanes and_not(Lanes a, Lanes b) { return static_cast<Lanes>(a & ~b); }
REDLINE_INLINE Lanes less(VecF32 a, VecF32 b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ); }
REDLINE_INLINE Lanes both(Lanes a, Lanes b) { return static_cast<Lanes>(a & b); }
REDLINE_INLINE int count(Lanes lanes) { return __builtin_popcount(lanes); }
REDLINE_INLINE Lanes either(Lanes a, Lanes b) { return static_cast<Lanes>(a | b); }
/// Returns the lanes where a or b is NaN.
REDLINE_INLINE Lanes unordered(VecF32 a, VecF32 b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_UNORD_Q); }
/// Two functions of floor(y): above_floor returns y minus it, and scale_by_floor returns p times 2 to that power.
REDLINE_INLINE VecF32 above_floor(VecF32 y) {
  return {_mm512_reduce_ps(y.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
}
REDLINE_INLINE VecF32 scale_by_floor(VecF32 p, VecF32 y) { return {_mm512_scalef_ps(p.v, y.v)}; }
/// Returns y minus the nearest integer, the even one of two.
REDLINE_INLINE VecF32 from_nearest(VecF32 y) {
  return {_mm512_reduce_ps(y.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
/// Returns a + b in the chosen lanes, a in the others.
REDLINE_INLINE VecI32 add_where(Lanes lanes, VecI32 a, VecI32 b) {
  return {_mm512_mask_add_epi32(a.v, lanes, a.v, b.v)};
}
/// Stores the selected lanes one after the other. Writes kWidth values; those after the selected ones are undefined.
REDLINE_INLINE void store_chosen(float* p, VecF32 a, Lanes lanes) {
  _mm512_storeu_ps(p, _mm512_maskz_compress_ps(lanes, a.v));
}
/// Stores first + the indices of the selected lanes.
REDLINE_INLINE void store_indices(int32_t* p, int32_t first, Lanes lanes) {
  const __m512i index = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i all = _mm512_add_epi32(_mm512_set1_epi32(first), index);
  _mm512_storeu_si512(p, _mm512_maskz_compress_epi32(lanes, all));
}
/// Returns sums over the lanes, which wrap around.
REDLINE_INLINE LaneSums reduce_add(VecI32 a, VecI32 b) {
  const __m512i z = _mm512_add_epi32(_mm512_unpacklo_epi32(a.v, b.v), _mm512_unpackhi_epi32(a.v, b.v));
  const __m256i y = _mm256_add_epi32(_mm512_castsi512_si256(z), _mm512_extracti64x4_epi64(z, 1));
  __m128i x = _mm_add_epi32(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
  x = _mm_add_epi32(x, _mm_unpackhi_epi64(x, x));
  return {_mm_cvtsi128_si32(x), _mm_extract_epi32(x, 1)};
}
/// Returns a * b + c, rounded once.
REDLINE_INLINE VecF32 fused(VecF32 a, VecF32 b, VecF32 c) { return fma(a, b, c); }

#else

struct Lanes {
  VecI32 v;  ///< all bits are set in a chosen lane
};
/// Returns y minus the nearest integer, the even one of two; |y| <= 2^22.
REDLINE_INLINE VecF32 from_nearest(VecF32 y) {
  const VecF32 magic = set1(12582912.0f);
  return y - ((y + magic) - magic);
}
REDLINE_INLINE VecI32 add_where(Lanes lanes, VecI32 a, VecI32 b) { return a + (b & lanes.v); }
REDLINE_INLINE Lanes and_not(Lanes a, Lanes b) { return {a.v & (b.v ^ set1_i32(-1))}; }
REDLINE_INLINE Lanes either(Lanes a, Lanes b) { return {a.v | b.v}; }
REDLINE_INLINE Lanes both(Lanes a, Lanes b) { return {a.v & b.v}; }

#if defined(__AVX2__)

REDLINE_INLINE Lanes at_least(VecF32 a, VecF32 b) {
  return {{_mm256_castps_si256(_mm256_cmp_ps(a.v, b.v, _CMP_GE_OQ))}};
}
REDLINE_INLINE Lanes less(VecF32 a, VecF32 b) { return {{_mm256_castps_si256(_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ))}}; }
REDLINE_INLINE Lanes unordered(VecF32 a, VecF32 b) {
  return {{_mm256_castps_si256(_mm256_cmp_ps(a.v, b.v, _CMP_UNORD_Q))}};
}
REDLINE_INLINE unsigned bits(Lanes lanes) {
  return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(lanes.v.v)));
}
REDLINE_INLINE LaneSums reduce_add(VecI32 a, VecI32 b) {
  const __m256i y = _mm256_add_epi32(_mm256_unpacklo_epi32(a.v, b.v), _mm256_unpackhi_epi32(a.v, b.v));
  __m128i x = _mm_add_epi32(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
  x = _mm_add_epi32(x, _mm_unpackhi_epi64(x, x));
  return {_mm_cvtsi128_si32(x), _mm_extract_epi32(x, 1)};
}
REDLINE_INLINE VecF32 fused(VecF32 a, VecF32 b, VecF32 c) { return fma(a, b, c); }

#else

REDLINE_INLINE Lanes at_least(VecF32 a, VecF32 b) { return {{a.v >= b.v}}; }
REDLINE_INLINE Lanes less(VecF32 a, VecF32 b) { return {{a.v < b.v}}; }
// NOLINTNEXTLINE(misc-redundant-expression): NaN differs from itself
REDLINE_INLINE Lanes unordered(VecF32 a, VecF32 b) { return {{(a.v != a.v) | (b.v != b.v)}}; }
REDLINE_INLINE unsigned bits(Lanes lanes) {
  unsigned all = 0;
  for (int i = 0; i < kWidth; ++i) all |= static_cast<unsigned>(lanes.v.v[i] & 1) << i;
  return all;
}
REDLINE_INLINE LaneSums reduce_add(VecI32 a, VecI32 b) {
  uint32_t sums[2] = {};
  for (int i = 0; i < kWidth; ++i) {
    sums[0] += static_cast<uint32_t>(a.v[i]);
    sums[1] += static_cast<uint32_t>(b.v[i]);
  }
  return {static_cast<int32_t>(sums[0]), static_cast<int32_t>(sums[1])};
}
/// Returns a * b + c, rounded once. In float64 the product is exact, and the sum is rounded to 53 bits. Rounding that
/// to 24 bits is wrong only if it lies halfway between two of these and was itself rounded: then it is moved by a unit
/// towards the exact sum. For results that are normal numbers.
REDLINE_INLINE VecF32 fused(VecF32 a, VecF32 b, VecF32 c) {
  constexpr uint64_t kBelow = (uint64_t{1} << 29) - 1, kHalf = uint64_t{1} << 28;
  VecF32 result;
  for (int i = 0; i < kWidth; ++i) {
    const double product = static_cast<double>(a.v[i]) * static_cast<double>(b.v[i]), addend = c.v[i];
    double sum = product + addend;
    uint64_t sum_bits = __builtin_bit_cast(uint64_t, sum);
    if ((sum_bits & kBelow) == kHalf) {
      const double rest = sum - product;  // two-sum (Knuth): what `sum` lacks
      const double error = (product - (sum - rest)) + (addend - rest);
      if (error != 0) sum_bits += (error > 0) == (sum > 0) ? 1 : ~uint64_t{0};
      sum = __builtin_bit_cast(double, sum_bits);
    }
    result.v[i] = static_cast<float>(sum);
  }
  return result;
}

#endif

REDLINE_INLINE int count(Lanes lanes) { return __builtin_popcount(bits(lanes)); }
REDLINE_INLINE void store_chosen(float* p, VecF32 a, Lanes lanes) {
  float all[kWidth];
  store(all, a, Full{});
  for (unsigned left = bits(lanes); left != 0; left &= left - 1) *p++ = all[__builtin_ctz(left)];
}
REDLINE_INLINE void store_indices(int32_t* p, int32_t first, Lanes lanes) {
  for (unsigned left = bits(lanes); left != 0; left &= left - 1) *p++ = first + __builtin_ctz(left);
}

#endif

}  // namespace redline::REDLINE_ISA_NS
