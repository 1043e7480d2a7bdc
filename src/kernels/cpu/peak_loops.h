// Register-resident multiply-add loops, for the sets whose dot products differ. Each returns the number of operations
// done.
#pragma once

#include "kernels/cpu/simd.h"

namespace redline::REDLINE_ISA_NS {

/// Forces the compiler to compute `value`, so that the loop before it is not removed.
template <class T>
REDLINE_INLINE void keep(const T& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

/// Makes the compiler assume that `value` changed, without storing it to memory if it is in a register.
REDLINE_INLINE void change(VecI32& value) {
#if defined(__AVX2__)
  asm volatile("" : "+x"(value.v));
#else
  asm volatile("" : "+m"(value));
#endif
}

/// Number of independent chains: more than latency 4 or 5 times 2 ports; with two operands they fit into 16 registers.
inline constexpr int kPeakChains = 12;

REDLINE_INLINE double peak_f32_loop(int64_t iterations) {
  VecF32 sum[kPeakChains];
  for (int c = 0; c < kPeakChains; ++c) sum[c] = set1(static_cast<float>(c));
  const VecF32 a = set1(0.5f), b = set1(0.25f);
  for (int64_t i = 0; i < iterations; ++i)
    for (int c = 0; c < kPeakChains; ++c) sum[c] = fma(sum[c], a, b);
  for (int c = 1; c < kPeakChains; ++c) sum[0] = sum[0] + sum[c];
  keep(sum[0]);
  return 2.0 * kPeakChains * kWidth * static_cast<double>(iterations);
}

REDLINE_INLINE double peak_bf16_loop(int64_t iterations) {
  VecF32 sum[kPeakChains];
  for (int c = 0; c < kPeakChains; ++c) sum[c] = set1(static_cast<float>(c));
  const VecI32 a = set1_i32(0x3f803f80), b = set1_i32(0x3f003f00);  // pairs of 1.0 and of 0.5
  for (int64_t i = 0; i < iterations; ++i)
    for (int c = 0; c < kPeakChains; ++c) sum[c] = dot2_bf16(sum[c], a, b);
  for (int c = 1; c < kPeakChains; ++c) sum[0] = sum[0] + sum[c];
  keep(sum[0]);
  return 2.0 * 2 * kPeakChains * kWidth * static_cast<double>(iterations);
}

REDLINE_INLINE double peak_i8_loop(int64_t iterations) {
  VecI32 sum[kPeakChains];
  for (int c = 0; c < kPeakChains; ++c) sum[c] = set1_i32(c);
  VecI32 a = set1_i32(0x01020304);
  const VecI32 b = set1_i32(0x04030201);
  for (int64_t i = 0; i < iterations; ++i) {
    for (int c = 0; c < kPeakChains; ++c) {
      change(a);  // without this, multi-instruction dot products would share their multiplication across chains
      sum[c] = dot4_u7s8(sum[c], a, b);
    }
  }
  for (int c = 1; c < kPeakChains; ++c) sum[0] = sum[0] ^ sum[c];
  keep(sum[0]);
  return 2.0 * 4 * kPeakChains * kWidth * static_cast<double>(iterations);
}

}  // namespace redline::REDLINE_ISA_NS
