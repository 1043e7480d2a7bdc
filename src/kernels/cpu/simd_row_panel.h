// Vectors over row panels, beyond simd.h: 16 lanes, one per row of a panel, in as many vectors as the set needs, and
// float16 values in 32-bit lanes. The few intrinsics are of no use elsewhere, so they are not in the sets' .inc files.
#pragma once

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"
#include "tensor/blocks/lanes.h"

namespace redline::REDLINE_ISA_NS {

inline constexpr int kRowPanelVecs = static_cast<int>(kRowPanelRows) / kWidth;

/// One value for each of the 16 rows of a row panel.
struct RowPanelF32 {
  VecF32 v[kRowPanelVecs];
};
struct RowPanelI32 {
  VecI32 v[kRowPanelVecs];
};

/// Calls body(Int<0>{}), body(Int<1>{}), ... unrolled by the front end: indices are constants from the start, so arrays
/// of sums become registers. With loops unrolled later by a pragma, GCC 12 leaves stores of the arrays behind.
template <int n>
struct Int {
  constexpr operator int() const { return n; }
};
template <int... n>
struct Ints {};
template <int kCount, int... n>
struct IntsBelow : IntsBelow<kCount - 1, kCount - 1, n...> {};
template <int... n>
struct IntsBelow<0, n...> {
  using Type = Ints<n...>;
};
template <int kFirst, class Body, int... n>
REDLINE_INLINE void unroll_at(const Body& body, Ints<n...>) {
  (body(Int<kFirst + n>{}), ...);
}
template <int kCount, int kFirst = 0, class Body>
REDLINE_INLINE void unroll(const Body& body) {
  if constexpr (kFirst < kCount) unroll_at<kFirst>(body, typename IntsBelow<kCount - kFirst>::Type{});
}

#define REDLINE_LAMBDA __attribute__((always_inline))

static_assert(blocks::kPartRows == kWidth && blocks::kParts == kRowPanelVecs);
/// Converts the vector types of the block format readers.
REDLINE_INLINE VecI32 bytes_i32(blocks::Bytes bytes) { return {(decltype(VecI32::v))bytes}; }
REDLINE_INLINE VecF32 floats_f32(blocks::Floats floats) { return {(decltype(VecF32::v))floats}; }

REDLINE_INLINE RowPanelF32 load_row_panel(const float* p) {
  RowPanelF32 s;
#pragma GCC unroll 4
  for (int i = 0; i < kRowPanelVecs; ++i) s.v[i] = load(p + i * kWidth, Full{});
  return s;
}
REDLINE_INLINE void store_row_panel(float* p, const RowPanelF32& s) {
#pragma GCC unroll 4
  for (int i = 0; i < kRowPanelVecs; ++i) store(p + i * kWidth, s.v[i], Full{});
}
REDLINE_INLINE RowPanelI32 load_row_panel_i32(const void* p) {
  RowPanelI32 s;
#pragma GCC unroll 4
  for (int i = 0; i < kRowPanelVecs; ++i) s.v[i] = load_i32(static_cast<const uint8_t*>(p) + i * kWidth * 4);
  return s;
}
REDLINE_INLINE RowPanelF32 zero_row_panel() {
  RowPanelF32 s;
#pragma GCC unroll 4
  for (int i = 0; i < kRowPanelVecs; ++i) s.v[i] = zero_f32();
  return s;
}
/// Returns c + a * b, with the same b for all rows.
REDLINE_INLINE RowPanelF32 fma(const RowPanelF32& a, VecF32 b, RowPanelF32 c) {
#pragma GCC unroll 4
  for (int i = 0; i < kRowPanelVecs; ++i) c.v[i] = fma(a.v[i], b, c.v[i]);
  return c;
}
/// Loads only rows [0, lanes); memory of the other rows is not accessed.
REDLINE_INLINE RowPanelF32 load_row_panel(const float* p, int64_t lanes) {
  if (lanes >= kRowPanelRows) return load_row_panel(p);
  RowPanelF32 s;
#pragma GCC unroll 4
  for (int i = 0; i < kRowPanelVecs; ++i) {
    const int64_t n = max_i64(0, min_i64(kWidth, lanes - i * kWidth));
    s.v[i] = load(p + i * kWidth, Tail{static_cast<int>(n)});
  }
  return s;
}
REDLINE_INLINE void store_row_panel(float* p, const RowPanelF32& s, int64_t lanes) {
  if (lanes >= kRowPanelRows) return store_row_panel(p, s);
#pragma GCC unroll 4
  for (int i = 0; i < kRowPanelVecs; ++i) {
    const int64_t n = max_i64(0, min_i64(kWidth, lanes - i * kWidth));
    store(p + i * kWidth, s.v[i], Tail{static_cast<int>(n)});
  }
}

#if defined(__AVX512F__) || defined(__AVX2__)
/// Two floats that are loaded together.
// NOLINTNEXTLINE(modernize-use-using): with using, the order of attributes differs between compilers.
typedef double double_in_floats __attribute__((may_alias, aligned(4)));
#endif

#if defined(__AVX512F__)

/// Widens the float16 in the low 16 bits of each lane.
REDLINE_INLINE VecF32 low_half_f32(VecI32 a) { return {_mm512_cvtph_ps(_mm512_cvtepi32_epi16(a.v))}; }
/// Widens kWidth consecutive float16 numbers.
REDLINE_INLINE VecF32 halves_f32(const uint8_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
/// Returns p[0], p[1], p[0], p[1], ...
REDLINE_INLINE VecF32 set1_pair(const float* p) {
  return {_mm512_castpd_ps(_mm512_set1_pd(*reinterpret_cast<const double_in_floats*>(p)))};
}
/// Returns a[0] + a[1], a[2] + a[3], ..., b[0] + b[1], ...
REDLINE_INLINE VecF32 add_neighbours(VecF32 a, VecF32 b) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  return {_mm512_add_ps(_mm512_permutex2var_ps(a.v, even, b.v), _mm512_permutex2var_ps(a.v, odd, b.v))};
}

#elif defined(__AVX2__)

REDLINE_INLINE VecF32 halves_f32(const uint8_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
REDLINE_INLINE VecF32 set1_pair(const float* p) {
  return {_mm256_castpd_ps(_mm256_broadcast_sd(reinterpret_cast<const double_in_floats*>(p)))};
}
REDLINE_INLINE VecF32 add_neighbours(VecF32 a, VecF32 b) {
  const __m256d sums = _mm256_castps_pd(_mm256_hadd_ps(a.v, b.v));  // two sums each of a, b, a, b
  return {_mm256_castpd_ps(_mm256_permute4x64_pd(sums, 0xd8))};
}

REDLINE_INLINE VecF32 low_half_f32(VecI32 a) {
  const __m256i low = _mm256_and_si256(a.v, _mm256_set1_epi32(0xffff));
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0xd8);
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(packed))};
}

#else

REDLINE_INLINE VecF32 low_half_f32(VecI32 a) {
  uint16_t halves[kWidth];
  for (int i = 0; i < kWidth; ++i) halves[i] = static_cast<uint16_t>(a.v[i]);
  return load(reinterpret_cast<const F16*>(halves), Full{});
}

#endif

}  // namespace redline::REDLINE_ISA_NS
