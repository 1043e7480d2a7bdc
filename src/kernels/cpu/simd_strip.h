// What packed strips need beyond simd.h: a strip line of 16 lanes in as many vectors as the set takes, halves that lie
// in the 32-bit lanes of a line, and the transposition that turns 16 rows into lines. The intrinsics are few and of no
// use elsewhere, so they stand here and not in the sets' .inc files.
#pragma once

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace redline::REDLINE_ISA_NS {

inline constexpr int kStripVecs = static_cast<int>(kStripRows) / kWidth;

/// One value for each of the 16 rows of a strip.
struct StripF32 {
  VecF32 v[kStripVecs];
};
struct StripI32 {
  VecI32 v[kStripVecs];
};

REDLINE_INLINE StripF32 load_strip(const float* p) {
  StripF32 s;
#pragma GCC unroll 4
  for (int i = 0; i < kStripVecs; ++i) s.v[i] = load(p + i * kWidth, Full{});
  return s;
}
REDLINE_INLINE void store_strip(float* p, const StripF32& s) {
#pragma GCC unroll 4
  for (int i = 0; i < kStripVecs; ++i) store(p + i * kWidth, s.v[i], Full{});
}
REDLINE_INLINE StripI32 load_strip_i32(const void* p) {
  StripI32 s;
#pragma GCC unroll 4
  for (int i = 0; i < kStripVecs; ++i) s.v[i] = load_i32(static_cast<const uint8_t*>(p) + i * kWidth * 4);
  return s;
}
REDLINE_INLINE StripF32 zero_strip() {
  StripF32 s;
#pragma GCC unroll 4
  for (int i = 0; i < kStripVecs; ++i) s.v[i] = zero_f32();
  return s;
}
/// c + a * b, b the same for all rows.
REDLINE_INLINE StripF32 fma(const StripF32& a, VecF32 b, StripF32 c) {
#pragma GCC unroll 4
  for (int i = 0; i < kStripVecs; ++i) c.v[i] = fma(a.v[i], b, c.v[i]);
  return c;
}
/// Rows [0, lanes) only; memory of the others is not touched.
REDLINE_INLINE StripF32 load_strip(const float* p, int64_t lanes) {
  if (lanes >= kStripRows) return load_strip(p);
  StripF32 s;
#pragma GCC unroll 4
  for (int i = 0; i < kStripVecs; ++i) {
    const int64_t n = max_i64(0, min_i64(kWidth, lanes - i * kWidth));
    s.v[i] = load(p + i * kWidth, Tail{static_cast<int>(n)});
  }
  return s;
}
REDLINE_INLINE void store_strip(float* p, const StripF32& s, int64_t lanes) {
  if (lanes >= kStripRows) return store_strip(p, s);
#pragma GCC unroll 4
  for (int i = 0; i < kStripVecs; ++i) {
    const int64_t n = max_i64(0, min_i64(kWidth, lanes - i * kWidth));
    store(p + i * kWidth, s.v[i], Tail{static_cast<int>(n)});
  }
}

#if defined(__AVX512F__)

/// The half in the low 16 bits of each lane.
REDLINE_INLINE VecF32 low_half_f32(VecI32 a) { return {_mm512_cvtph_ps(_mm512_cvtepi32_epi16(a.v))}; }

/// target[j][i] = source[i][j] for kWidth x kWidth words; both strides in words.
REDLINE_INLINE void transpose_words(const int32_t* source, int64_t source_stride, int32_t* target,
                                    int64_t target_stride) {
  __m512i a[16], b[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) a[i] = _mm512_loadu_si512(source + i * source_stride);
    // Pairs of rows, then fours: b[4 q + c] lane l holds rows 4 q .. 4 q + 3 of column 4 l + c.
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
    a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
    a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
    a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
  // A 4 x 4 transposition of 128-bit lanes for each c.
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i low01 = _mm512_shuffle_i32x4(a[c], a[c + 4], 0x44);
    const __m512i high01 = _mm512_shuffle_i32x4(a[c], a[c + 4], 0xee);
    const __m512i low23 = _mm512_shuffle_i32x4(a[c + 8], a[c + 12], 0x44);
    const __m512i high23 = _mm512_shuffle_i32x4(a[c + 8], a[c + 12], 0xee);
    _mm512_storeu_si512(target + c * target_stride, _mm512_shuffle_i32x4(low01, low23, 0x88));
    _mm512_storeu_si512(target + (c + 4) * target_stride, _mm512_shuffle_i32x4(low01, low23, 0xdd));
    _mm512_storeu_si512(target + (c + 8) * target_stride, _mm512_shuffle_i32x4(high01, high23, 0x88));
    _mm512_storeu_si512(target + (c + 12) * target_stride, _mm512_shuffle_i32x4(high01, high23, 0xdd));
  }
}

#elif defined(__AVX2__)

REDLINE_INLINE VecF32 low_half_f32(VecI32 a) {
  const __m256i low = _mm256_and_si256(a.v, _mm256_set1_epi32(0xffff));
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0xd8);
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(packed))};
}

REDLINE_INLINE void transpose_words(const int32_t* source, int64_t source_stride, int32_t* target,
                                    int64_t target_stride) {
  __m256i a[8], b[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) a[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source + i * source_stride));
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    b[i] = _mm256_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_epi32(a[i], a[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    a[i] = _mm256_unpacklo_epi64(b[i], b[i + 2]);
    a[i + 1] = _mm256_unpackhi_epi64(b[i], b[i + 2]);
    a[i + 2] = _mm256_unpacklo_epi64(b[i + 1], b[i + 3]);
    a[i + 3] = _mm256_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    auto* low = reinterpret_cast<__m256i*>(target + c * target_stride);
    auto* high = reinterpret_cast<__m256i*>(target + (c + 4) * target_stride);
    _mm256_storeu_si256(low, _mm256_permute2x128_si256(a[c], a[c + 4], 0x20));
    _mm256_storeu_si256(high, _mm256_permute2x128_si256(a[c], a[c + 4], 0x31));
  }
}

#else

REDLINE_INLINE VecF32 low_half_f32(VecI32 a) {
  uint16_t halves[kWidth];
  for (int i = 0; i < kWidth; ++i) halves[i] = static_cast<uint16_t>(a.v[i]);
  return load(reinterpret_cast<const F16*>(halves), Full{});
}

REDLINE_INLINE void transpose_words(const int32_t* source, int64_t source_stride, int32_t* target,
                                    int64_t target_stride) {
  for (int i = 0; i < kWidth; ++i)
    for (int j = 0; j < kWidth; ++j) target[j * target_stride + i] = source[i * source_stride + j];
}

#endif

/// 16 rows of `words` 32-bit words (a multiple of 16 where kWidth is, else of kWidth) to lines of 16.
REDLINE_INLINE void rows_to_lines(const void* rows, int64_t row_words, int64_t words, void* lines) {
  const auto* source = static_cast<const int32_t*>(rows);
  auto* target = static_cast<int32_t*>(lines);
  for (int64_t w = 0; w < words; w += kWidth)
    for (int64_t r = 0; r < kStripRows; r += kWidth)
      transpose_words(source + r * row_words + w, row_words, target + w * kStripRows + r, kStripRows);
}

}  // namespace redline::REDLINE_ISA_NS
