// The thin vector layer that all kernels use. There is one .inc file per instruction set; only these contain
// intrinsics.
//
//   VecF32, VecI32      kWidth lanes of float32 or int32: 4 (generic), 8 (avx2), 16 (avx512)
//   load, store         pointer and lane count: Full{} for a whole vector, Tail{n} for n lanes (0 <= n <= kWidth). A
//                       tail accesses no memory past lane n; loads fill the remaining lanes with zeros
//   for_lanes           loop over a row with one body: whole vectors, then the tail
//
// Elements in memory are float, F16, BF16 (arithmetic is always float32). Everything is forced inline, so that no
// symbol outside the set's own namespace is emitted.
#pragma once

#include <cstdint>

#ifndef REDLINE_ISA_NS
#error "simd.h is for *.kernel.cc only: the build compiles those once per instruction set"
#endif
#define REDLINE_INLINE inline __attribute__((always_inline))

namespace redline::REDLINE_ISA_NS {

struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};
/// Lane counts of load and store.
struct Full {};
struct Tail {
  int n;
};

}  // namespace redline::REDLINE_ISA_NS

// Each file defines kWidth, VecF32, VecI32 and, for them:
//   zero_f32 set1 load store  + - * /  fma(a, b, c) = a * b + c  max min  reduce_add reduce_max
//   zero_i32 set1_i32 load_i32 store  + - * & | ^ max  shl<n> shr<n> (logical) sar<n>  to_f32 to_i32 bits_f32 bits_i32
//   shl(a, n) sar(a, n)         each lane by its own number of bits
//   load_u8 load_i8 load_i16    kWidth bytes or int16 widened to int32
//   dot4_u7s8                   acc[i] + sum_j u[4i + j] * s[4i + j] over bytes; u <= 127, or any with vpdpbusd
//   dot4_s8s8                   the same with signed bytes; the second operand in [-127, 127]
//   dot2_i16                    acc[i] + sum_j a[2i + j] * b[2i + j] over int16 pairs
//   mul_i16                     the low half of each int16 product
//   pairs_u8s8 add_i16          AVX2 and AVX-512: sums of pairs of products in int16, which saturate; int16 addition
//   dot2_bf16                   acc[i] + sum_j a[2i + j] * b[2i + j] over bf16 pairs
//   transpose                   kWidth vectors of kWidth lanes
//   lookup16                    each byte of the index (0..15) replaced by that entry of a 16-byte table
// reduce_* combine lanes in one fixed order: halves, quarters, eighths. max(a, b) and min(a, b) return b when either is
// NaN.
#include REDLINE_SIMD  // "kernels/cpu/simd_SET.inc" of the base set

namespace redline::REDLINE_ISA_NS {

/// Calls body(i, lanes) for i = 0, kWidth, ... below count; lanes is Full{} for whole vectors and Tail{n} for the rest.
template <class Body>
REDLINE_INLINE void for_lanes(int64_t count, Body&& body) {
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) body(i, Full{});
  if (i < count) body(i, Tail{static_cast<int>(count - i)});
}

REDLINE_INLINE float max_f32(float a, float b) { return a > b ? a : b; }
REDLINE_INLINE int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
REDLINE_INLINE int64_t max_i64(int64_t a, int64_t b) { return a > b ? a : b; }

/// Returns e^x, relative error below kExpError wherever the result is a normal float (below that, one unit of the last
/// subnormal place). -inf and everything below -104 give 0, everything above 88.73 gives +inf, NaN gives NaN.
///
/// x = n ln 2 + r with |r| <= ln 2 / 2, then 1 + r + r^2 P(r) with P of degree 4, fitted by reweighted least squares to
/// 3.1e-9 relative; the rest of the bound is rounding. 2^n is applied in two factors, so that subnormal results round
/// only once.
inline constexpr float kExpError = 1.2e-7f;
REDLINE_INLINE VecF32 exp(VecF32 x) {
  x = max(set1(-105.0f), min(set1(90.0f), x));  // this order keeps a NaN
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits; unlike a conversion, this cannot overflow.
  const VecF32 magic = set1(12582912.0f);
  const VecF32 shifted = x * set1(1.44269504f) + magic;
  const VecF32 n = shifted - magic;
  const VecI32 n_int = bits_i32(shifted) - set1_i32(0x4B400000);
  // The high part of ln 2 has 15 bits, so that n times it is exact with or without fused multiply-add.
  VecF32 r = fma(n, set1(-0x1.62e4p-1f), x);
  r = fma(n, set1(-1.42860677e-6f), r);
  VecF32 p = fma(r, set1(0x1.6a2352p-10f), set1(0x1.123a6cp-7f));
  p = fma(p, r, set1(0x1.5558f4p-5f));
  p = fma(p, r, set1(0x1.55549p-3f));
  p = fma(p, r, set1(0x1.fffffcp-2f));
  const VecF32 y = fma(p, r * r, r) + set1(1.0f);
  const VecI32 half = sar<1>(n_int);
  const VecF32 scale_a = bits_f32(shl<23>(half + set1_i32(127)));
  const VecF32 scale_b = bits_f32(shl<23>(n_int - half + set1_i32(127)));
  return y * scale_a * scale_b;
}

/// Returns e^x of a scalar: the same code on lane 0, so that scalars and vectors agree bit for bit.
REDLINE_INLINE float exp_f32(float x) {
  float out[kWidth];
  store(out, exp(set1(x)), Full{});
  return out[0];
}

}  // namespace redline::REDLINE_ISA_NS
