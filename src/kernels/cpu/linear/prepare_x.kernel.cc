// Converts activations to the layouts that linear kernels read (tensor/activation_layout.h).
#include "kernels/cpu/codes_avx512.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd_row_panel.h"

namespace redline::REDLINE_ISA_NS {
namespace {

constexpr float kSmallestMax = 0x1p-100f;

#if defined(__AVX512F__)

REDLINE_INLINE int32_t largest_lane(__m256i v) {
  __m128i x = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  x = _mm_max_epi32(x, _mm_shuffle_epi32(x, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(x, _mm_shuffle_epi32(x, 0xb1)));
}

// Converts a group, or the rest of the row; `count` is a multiple of kQ8Step. Element by element this would take a
// twentieth of a prompt's time.
void prepare_q8_group(const float* x, int64_t count, int8_t* codes, Q8Numbers& numbers) {
  constexpr int kSteps = kQ8Group / kQ8Step, kLines = kQ8Group / 64;
  const int steps = static_cast<int>(count / kQ8Step);
  const auto part = [&](int i) REDLINE_LAMBDA {  // 16 elements
    return i < 2 * steps ? load(x + i * kWidth, Full{}) : zero_f32();
  };
  // Magnitudes are compared as integers: NaN is the largest.
  VecI32 largest[kSteps];
#pragma GCC unroll 8
  for (int step = 0; step < kSteps; ++step) {
    const VecI32 magnitude = set1_i32(0x7fffffff);
    largest[step] = max(bits_i32(part(2 * step)) & magnitude, bits_i32(part(2 * step + 1)) & magnitude);
  }
  const __m256i step_bits = largest_lanes(largest);
  const __m256 step_max = _mm256_castsi256_ps(step_bits);
  const float x_max = __builtin_bit_cast(float, largest_lane(step_bits));
  const bool is_zero = x_max < kSmallestMax;
  const float inverse = is_zero ? 0.0f : 127.0f / x_max;
  // NaN unless every element is finite.
  numbers.scale = (is_zero ? 0.0f : x_max / 127.0f * (1.0f / (1 << kQ8MaxShift))) + (x_max - x_max);

  const auto at_most = [&](float most) REDLINE_LAMBDA {  // -1 where it is
    return _mm256_castps_si256(_mm256_cmp_ps(step_max, _mm256_set1_ps(most), _CMP_LE_OQ));
  };
  __m256i shifts = _mm256_set1_epi32(kQ8MaxShift);
  float most = x_max;
#pragma GCC unroll 3
  for (int i = 0; i < kQ8MaxShift; ++i) shifts = _mm256_add_epi32(shifts, at_most(most *= 0.5f));
  const __m128i shift_bytes = _mm256_cvtepi32_epi8(shifts);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(numbers.shifts), shift_bytes);
  numbers.packed_shifts =
      static_cast<int32_t>(_pext_u64(static_cast<uint64_t>(_mm_cvtsi128_si64(shift_bytes)), 0x0303030303030303));
  alignas(32) float scaled[kSteps];  // inverse * 2^(kQ8MaxShift - shift)
  const __m256i exponents = _mm256_sub_epi32(_mm256_set1_epi32(127 + kQ8MaxShift), shifts);
  _mm256_store_ps(scaled,
                  _mm256_mul_ps(_mm256_set1_ps(inverse), _mm256_castsi256_ps(_mm256_slli_epi32(exponents, 23))));

  VecI32 sums[kLines];  // of each 4 codes
#pragma GCC unroll 4
  for (int line = 0; line < kLines; ++line) {
    const auto wide = [&](int j)
                          REDLINE_LAMBDA { return to_i32(part(4 * line + j) * set1(scaled[2 * line + j / 2])).v; };
    const __m512i of_line = pack_codes(wide);
    if (2 * line + 1 < steps) _mm512_storeu_si512(codes + line * 64, of_line);
    else if (2 * line < steps)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + line * 64), _mm512_castsi512_si256(of_line));
    sums[line] = dot4_u7s8(zero_i32(), set1_i32(0x01010101), {of_line});
  }
  const __m512i ones = _mm512_set1_epi16(1);
  const __m512i low = _mm512_madd_epi16(_mm512_packs_epi32(sums[0].v, sums[1].v), ones);
  const __m512i high = _mm512_madd_epi16(_mm512_packs_epi32(sums[2].v, sums[3].v), ones);
  const __m512i of_16 =
      _mm512_permutexvar_epi32(packed_order(), _mm512_madd_epi16(_mm512_packs_epi32(low, high), ones));
  const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  const __m256i shifted =
      _mm512_cvtepi32_epi16(_mm512_sllv_epi32(of_16, _mm512_permutexvar_epi32(twice, _mm512_castsi256_si512(shifts))));
  _mm256_store_si256(reinterpret_cast<__m256i*>(numbers.sums16), shifted);
  _mm_store_si128(reinterpret_cast<__m128i*>(numbers.sums32),
                  _mm256_cvtepi32_epi16(_mm256_madd_epi16(shifted, _mm256_set1_epi16(1))));
}

#else

// Converts a group, or the rest of the row; `count` is a multiple of kQ8Step.
void prepare_q8_group(const float* x, int64_t count, int8_t* codes, Q8Numbers& numbers) {
  float step_max[kQ8Group / kQ8Step] = {}, x_max = 0;
  VecF32 poison = zero_f32();
  for (int64_t step = 0; step < count; step += kQ8Step) {
    VecF32 largest = zero_f32();
#pragma GCC unroll 8
    for (int i = 0; i < kQ8Step / kWidth; ++i) {
      const VecF32 v = load(x + step + i * kWidth, Full{});
      largest = max(largest, max(v, zero_f32() - v));
      poison = fma(v, zero_f32(), poison);  // NaN unless every element is finite
    }
    step_max[step / kQ8Step] = reduce_max(largest);
    x_max = max_f32(step_max[step / kQ8Step], x_max);
  }
  const bool is_zero = x_max < kSmallestMax;
  const float inverse = is_zero ? 0.0f : 127.0f / x_max;
  numbers = {};
  numbers.scale = (is_zero ? 0.0f : x_max / 127.0f * (1.0f / (1 << kQ8MaxShift))) + reduce_add(poison);
  for (int64_t step = 0; step < count; step += kQ8Step) {
    int shift = kQ8MaxShift;
    float scaled = inverse;
    for (float most = x_max * 0.5f; shift > 0 && step_max[step / kQ8Step] <= most; most *= 0.5f) --shift, scaled *= 2;
    numbers.shifts[step / kQ8Step] = static_cast<uint8_t>(shift);
    numbers.packed_shifts |= shift << (2 * (step / kQ8Step));
    int32_t rounded[kQ8Step];
#pragma GCC unroll 8
    for (int i = 0; i < kQ8Step / kWidth; ++i)
      store(rounded + i * kWidth, to_i32(load(x + step + i * kWidth, Full{}) * set1(scaled)), Full{});
    int32_t sums[2] = {};
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 16; ++i) {
        // Sum the int8 value: the int32 of a NaN or infinity could overflow the sum.
        const auto code = static_cast<int8_t>(rounded[half * 16 + i]);
        codes[step + half * 16 + i] = code;
        sums[half] += code;
      }
      numbers.sums16[step / 16 + half] = static_cast<int16_t>(sums[half] * (1 << shift));
    }
    numbers.sums32[step / 32] = static_cast<int16_t>((sums[0] + sums[1]) * (1 << shift));
  }
}

#endif

void prepare_q8(const PrepareXArgs& a) {
  for (int64_t row = a.row_begin; row < a.row_end; ++row) {
    const float* x = a.x + (row - a.row_begin) * a.x_stride - a.col_begin;
    auto* out = static_cast<uint8_t*>(a.out) + row * q8_row_bytes(a.cols);
    auto* numbers = reinterpret_cast<Q8Numbers*>(out + q8_numbers_at(a.cols));
    for (int64_t col = a.col_begin; col < a.col_end; col += kQ8Group)
      prepare_q8_group(x + col, min_i64(kQ8Group, a.col_end - col), reinterpret_cast<int8_t*>(out) + col,
                       numbers[col / kQ8Group]);
  }
}

// Writes 32 elements: `count` elements of x, then zeros.
void prepare_tile_row(const float* x, int64_t count, BF16* out) {
  if (count == 32) {
#pragma GCC unroll 8
    for (int i = 0; i < 32 / kWidth; ++i) store(out + i * kWidth, load(x + i * kWidth, Full{}), Full{});
    return;
  }
  float padded[32] = {};
  for (int64_t i = 0; i < count; ++i) padded[i] = x[i];
  prepare_tile_row(padded, 32, out);
}

void prepare_tiles(const PrepareXArgs& a) {
  const int64_t panel_elements = tiles_panel_bytes(a.cols) / 2;
  for (int64_t row = a.row_begin; row < a.row_end; ++row) {
    const float* x = a.x + (row - a.row_begin) * a.x_stride - a.col_begin;
    BF16* out = static_cast<BF16*>(a.out) + row / kXTileRows * panel_elements + row % kXTileRows * 32;
    for (int64_t col = a.col_begin; col < a.col_end; col += 32)
      prepare_tile_row(x + col, min_i64(32, a.col_end - col), out + col * kXTileRows);
  }
}

}  // namespace

void fill_prepare_x(CpuKernels& t) {
  t.prepare_x[static_cast<int>(ActivationLayout::kI8Grouped)] = prepare_q8;
  t.prepare_x[static_cast<int>(ActivationLayout::kBf16Tiled)] = prepare_tiles;
}

}  // namespace redline::REDLINE_ISA_NS
