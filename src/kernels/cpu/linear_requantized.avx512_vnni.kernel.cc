// y = x W^T (+ bias) (+ gate) (+ residual) of a block format for many rows: its weights are rounded to int8 again,
// with one scale for 256 elements of a row, and x is kI8TiledGroups.
//
// linear_q8 multiplies the codes as they are, so that every 32 products of a row need a scale of their own: an
// instruction beside 8 dot products, on the same port. Here 256 elements have one, x has one for 128, and the loop is
// that of W8A8 (linear_i8_rows.h), for every format alike. Rounding takes ten instructions for 64 weights, once for
// 256 rows of x.
//
// A weight scale * code - min becomes round((scale * code - min) 127 / M), with M the largest magnitude that the
// scales and minimums of the 256 elements allow. In units of 1/64 that is A code + B, in 16 bits: A is a fraction, so
// that mulhrs gives the product. Rounding moves a weight by at most 0.53 M / 127 (docs/numerics.md).
#include "kernels/cpu/linear_i8_rows.h"
#include "kernels/cpu/linear_q8_scales.h"

namespace redline::REDLINE_ISA_NS {
namespace {

constexpr int kFractionBits = 6;

/// By how many bits codes are shifted; the largest is below 2^15 then.
template <class Format>
constexpr int code_shift() {
  int shift = 15;
  while ((Format::kMaxCode + Format::kOffset) << shift >= 1 << 15) --shift;
  return shift;
}

struct Unpacked {
  int64_t row_panel_bytes, group_bytes;  ///< of a row panel; of 256 elements of it
  /// `steps` x 32 elements of a row panel from the beginning of 256: codes plus 128, and 16 scales.
  void (*group)(const uint8_t* block, int steps, uint8_t* codes, float* scales);
};

/// Two 16-bit copies of the lower half.
REDLINE_INLINE __m512i twice(__m512i v) {
  return _mm512_or_si512(_mm512_and_si512(v, _mm512_set1_epi32(0xffff)), _mm512_slli_epi32(v, 16));
}

/// Bytes A code + B, for 64 codes.
template <int kShift>
REDLINE_INLINE __m512i round_codes(__m512i codes, __m512i a, __m512i b) {
  const __m512i odd_bytes = _mm512_set1_epi16(static_cast<int16_t>(0xff00));
  const __m512i low = kShift >= 8 ? codes : _mm512_andnot_si512(odd_bytes, codes);
  const __m512i high = _mm512_and_si512(codes, odd_bytes);
  const auto scaled = [&](__m512i code) REDLINE_LAMBDA { return _mm512_add_epi16(_mm512_mulhrs_epi16(code, a), b); };
  const __m512i even = scaled(_mm512_slli_epi16(low, kShift));
  const __m512i odd = scaled(kShift >= 8 ? _mm512_slli_epi16(high, kShift - 8) : _mm512_srli_epi16(high, 8 - kShift));
  // (even >> 6) and (odd >> 6) << 8: where the mask is set, the second.
  return _mm512_ternarylogic_epi32(odd_bytes, _mm512_slli_epi16(odd, 8 - kFractionBits),
                                   _mm512_srli_epi16(even, kFractionBits), 0xca);
}

template <class Format>
[[gnu::noinline]] void requantize(const uint8_t* block, int steps, uint8_t* to, float* scales) {
  using RowPanel = blocks::RowPanel<Format>;
  using Codes = typename CodesOf<Format>::Type;
  constexpr int kInBlock = Format::kElements / Format::kGroup, kInStep = kQ8Step / Format::kGroup;
  constexpr int kMax = kQ8Group / Format::kGroup, kSteps = Format::kElements / kQ8Step;
  constexpr auto kMaxCode = static_cast<float>(Format::kMaxCode);
  const auto head = [&](int g) REDLINE_LAMBDA { return block + g / kInBlock * RowPanel::kBytes; };
  const int count = steps * kInStep;
  VecF32 scale[kMax], min[kMax];
  // Magnitudes are compared as integers: those that are not finite are the largest.
  VecI32 largest = bits_i32(set1(kSmallestScale));
  const auto look = [&](VecF32 v) REDLINE_LAMBDA { largest = max(largest, bits_i32(v) & set1_i32(0x7fffffff)); };
  for (int g = 0; g < count; ++g) {
    scale[g] = floats_f32(Format::Head::scale(head(g), g % kInBlock, 0));
    const VecF32 most = scale[g] * set1(kMaxCode);
    if constexpr (Format::kHasMins) {
      min[g] = floats_f32(Format::Head::min(head(g), g % kInBlock, 0));
      look(most - min[g]);
      look(min[g]);
    } else {
      look(most);
    }
  }
  const VecF32 most = bits_f32(largest);
  store(scales, most * set1(1.0f / 127.0f), Full{});
  const VecF32 inverse = {_mm512_div_ps(_mm512_set1_ps(127.0f), most.v)};
  for (int step = 0; step < steps; ++step, to += kQ8Step * kRowPanelRows) {
    const uint8_t* codes = head(step * kInStep) + RowPanel::kHeadBytes + step % kSteps * RowPanel::kStepBytes;
    unroll<kInStep>([&](auto part) REDLINE_LAMBDA {
      const int g = step * kInStep + part;
      const VecF32 factor = scale[g] * inverse;
      VecF32 start = fma(factor, set1(-Format::kOffset), set1(128.5f));
      if constexpr (Format::kHasMins) start = fma(min[g], zero_f32() - inverse, start);
      const __m512i a = twice(to_i32(factor * set1(1 << (15 + kFractionBits - code_shift<Format>()))).v);
      const __m512i b = twice(to_i32(start * set1(1 << kFractionBits)).v);
      constexpr int kLines = kQ8Step / 4 / kInStep;
      unroll<kLines / 2>([&](auto pair) REDLINE_LAMBDA {
        constexpr int kFirst = pair * 2;
        const int l = part * kLines + kFirst;
        blocks::Bytes low, high;
        if constexpr (requires { Codes::two_lines(codes, 0, 0, low, high); }) {
          Codes::two_lines(codes, l, 0, low, high);
        } else {
          low = Codes::line(codes, l, 0);
          high = Codes::line(codes, l + 1, 0);
        }
        _mm512_store_si512(to + l * 64, round_codes<code_shift<Format>()>(bytes_i32(low).v, a, b));
        _mm512_store_si512(to + (l + 1) * 64, round_codes<code_shift<Format>()>(bytes_i32(high).v, a, b));
      });
    });
  }
}

struct RequantizedWeights {
  static constexpr int64_t kXGroup = kI8Group, kScaleGroup = kQ8Group, kChunk = 512;
  static constexpr bool kIsUnsigned = true, kHasStarts = true;

  const Unpacked& of;

  int64_t row_panel_bytes(const LinearArgs&) const { return of.row_panel_bytes; }
  int64_t bytes(const LinearArgs&, int64_t k) const { return (k + kQ8Group - 1) / kQ8Group * of.group_bytes; }
  const uint8_t* place(const LinearArgs& a, int64_t n, int64_t k) const {
    return static_cast<const uint8_t*>(a.weight) + n / kRowPanelRows * of.row_panel_bytes +
           k / kQ8Group * of.group_bytes;
  }
  void load(const LinearArgs& a, int64_t n, int64_t row_panels, int64_t k, int64_t count,
            I8Scratch<RequantizedWeights>& scratch) const {
    for (int64_t s = 0; s < row_panels; ++s)
      for (int64_t at = 0; at < count; at += kQ8Group)
        of.group(place(a, n + s * kRowPanelRows, k + at), static_cast<int>(min_i64(kQ8Group, count - at) / kQ8Step),
                 scratch.codes[s] + at * kRowPanelRows, scratch.scales[at / kQ8Group][s]);
  }
};

/// One loop for all formats.
[[gnu::noinline]] void multiply(const LinearArgs& a, const Unpacked& of) {
  if (a.in_features > 0) return linear_i8_rows(a, RequantizedWeights{of});
  for (int64_t row = 0; row < a.rows; ++row)
    for (int64_t n = a.n_begin; n < a.n_end; n += kRowPanelRows) finish_row_panel(a, row, n, zero_row_panel());
}

template <class Format>
void linear_requantized(const LinearArgs& a) {
  using RowPanel = blocks::RowPanel<Format>;
  multiply(a, {.row_panel_bytes = a.in_features / Format::kElements * RowPanel::kBytes,
               .group_bytes = kQ8Group / Format::kElements * RowPanel::kBytes,
               .group = requantize<Format>});
}

/// reduce(lanes of v[i]) for i = 0 to 7.
template <class Reduce>
REDLINE_INLINE __m256i reduce_lanes(const __m512i (&v)[8], const Reduce& reduce) {
  __m512i pairs[4], fours[2];
  for (int i = 0; i < 4; ++i)
    pairs[i] = reduce(_mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]), _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
  for (int i = 0; i < 2; ++i)
    fours[i] = reduce(_mm512_unpacklo_epi64(pairs[2 * i], pairs[2 * i + 1]),
                      _mm512_unpackhi_epi64(pairs[2 * i], pairs[2 * i + 1]));
  const __m512i halves =
      reduce(_mm512_shuffle_i32x4(fours[0], fours[1], 0x88), _mm512_shuffle_i32x4(fours[0], fours[1], 0xdd));
  const __m512i whole = reduce(halves, _mm512_shuffle_i32x4(halves, halves, 0xb1));
  return _mm512_castsi512_si256(_mm512_shuffle_i32x4(whole, whole, 0x88));
}

constexpr float kSmallestMax = 0x1p-100f;

/// Up to 8 groups of x, `count` elements; numbers of a group are kI8ChunkScaleBytes apart.
void prepare_groups(const float* x, int64_t count, uint8_t* codes, uint8_t* numbers) {
  constexpr int kGroups = 8, kVectors = kI8Group / 16, kLines = kI8Group / kI8TileColumns;
  const auto part = [&](int64_t i) REDLINE_LAMBDA {  // 16 elements; a multiple of 16 is left
    return i * 16 < count ? load(x + i * 16, Full{}) : zero_f32();
  };
  __m512i largest[kGroups];
  for (int g = 0; g < kGroups; ++g) {
    VecI32 most = zero_i32();
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) most = max(most, bits_i32(part(g * kVectors + i)) & set1_i32(0x7fffffff));
    largest[g] = most.v;
  }
  const __m256 most = _mm256_castsi256_ps(
      reduce_lanes(largest, [](__m512i a, __m512i b) REDLINE_LAMBDA { return _mm512_max_epi32(a, b); }));
  const __m256 is_large = _mm256_cmp_ps(most, _mm256_set1_ps(kSmallestMax), _CMP_NLT_UQ);
  alignas(32) float inverse[kGroups], scale[kGroups];
  alignas(32) int32_t starts[kGroups];
  _mm256_store_ps(inverse, _mm256_and_ps(is_large, _mm256_div_ps(_mm256_set1_ps(127.0f), most)));
  // NaN unless every element is finite.
  _mm256_store_ps(scale, _mm256_add_ps(_mm256_and_ps(is_large, _mm256_mul_ps(most, _mm256_set1_ps(1.0f / 127.0f))),
                                       _mm256_sub_ps(most, most)));
  // Packing works within 128-bit parts: dword 4 q + j of the result has what belongs to 4 j + q.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  __m512i sums[kGroups];
  for (int g = 0; g < kGroups; ++g) {
    sums[g] = _mm512_setzero_si512();
#pragma GCC unroll 2
    for (int line = 0; line < kLines; ++line) {
      const int64_t at = g * kI8Group + line * kI8TileColumns;
      if (at >= count) break;
      const auto wide = [&](int j) REDLINE_LAMBDA { return to_i32(part(at / 16 + j) * set1(inverse[g])).v; };
      const __m512i packed =
          _mm512_packs_epi16(_mm512_packs_epi32(wide(0), wide(1)), _mm512_packs_epi32(wide(2), wide(3)));
      const __m512i of_line = _mm512_permutexvar_epi32(order, packed);
      _mm512_storeu_si512(codes + at * kXTileRows, of_line);
      sums[g] = _mm512_dpbusd_epi32(sums[g], _mm512_set1_epi8(1), of_line);
    }
  }
  const __m256i sum = reduce_lanes(sums, [](__m512i a, __m512i b) REDLINE_LAMBDA { return _mm512_add_epi32(a, b); });
  _mm256_store_si256(reinterpret_cast<__m256i*>(starts), _mm256_mullo_epi32(sum, _mm256_set1_epi32(-128)));
  for (int g = 0; g * kI8Group < count; ++g, numbers += kI8ChunkScaleBytes) {
    __builtin_memcpy(numbers, scale + g, 4);
    __builtin_memcpy(numbers + 64, starts + g, 4);
  }
}

void prepare_i8_groups(const PrepareXArgs& a) {
  const int64_t panel_bytes = i8_panel_bytes(a.cols, kI8Group), scales_at = i8_scales_at(a.cols);
  for (int64_t row = a.row_begin; row < a.row_end; ++row) {
    const float* x = a.x + (row - a.row_begin) * a.x_stride - a.col_begin;
    uint8_t* panel = static_cast<uint8_t*>(a.out) + row / kXTileRows * panel_bytes;
    const int64_t line = row % kXTileRows;
    for (int64_t col = a.col_begin; col < a.col_end; col += 8 * kI8Group)
      prepare_groups(x + col, min_i64(8 * kI8Group, a.col_end - col), panel + col * kXTileRows + line * kXTileBytes,
                     panel + scales_at + col / kI8Group * kI8ChunkScaleBytes + line * 4);
  }
}

}  // namespace

void fill_linear_requantized(CpuKernels& t) {
#define REDLINE_SET(F) t.linear_requantized[static_cast<int>(DType::k##F)] = linear_requantized<blocks::F>;
  REDLINE_BLOCK_FORMATS(REDLINE_SET)
#undef REDLINE_SET
  t.prepare_x[static_cast<int>(ActivationLayout::kI8TiledGroups)] = prepare_i8_groups;
}

}  // namespace redline::REDLINE_ISA_NS
