// Packed weights brought into the order of tile products, rounded to bfloat16: what linear_tiles.h multiplies by.
//
// A tile is 16 lines of 64 bytes, a line 16 rows x 2 neighbouring elements of K. A float is rounded to nearest. So is the
// value of a block format, computed within two float32 roundings of what blocks::unpack gives or, where the CPU has float16
// arithmetic, within three roundings to 11 bits of scale code and min.
#pragma once

#include "kernels/cpu/linear_tiles.h"
#include "tensor/blocks/all.h"

namespace redline::REDLINE_ISA_NS {
namespace {

/// Neighbouring elements of 16 rows as one line, rounded to nearest, ties away from zero: one instruction less than to
/// even. Values are finite, infinite or the NaN that clean() makes: half a unit more must not turn it into a zero.
REDLINE_INLINE void store_pair(uint8_t* line, const StripF32& even, const StripF32& odd) {
  const VecI32 half = set1_i32(0x8000), high = set1_i32(static_cast<int32_t>(0xffff0000u));
#pragma GCC unroll 4
  for (int i = 0; i < kStripVecs; ++i)
    store(reinterpret_cast<int32_t*>(line) + i * kWidth,
          shr<16>(bits_i32(even.v[i]) + half) | ((bits_i32(odd.v[i]) + half) & high), Full{});
}
/// NaN of any payload as one whose low bits are clear.
REDLINE_INLINE VecF32 clean(VecF32 v) {
#if defined(__AVX512F__)
  return {_mm512_fixupimm_ps(v.v, v.v, _mm512_set1_epi32(0x11111133), 0)};  // NaN: the indefinite one; else: itself
#else
  const VecI32 bits = bits_i32(v);
  const VecI32 is_nan = sar<31>(set1_i32(0x7f800000) - (bits & set1_i32(0x7fffffff)));
  return bits_f32((bits ^ (bits & is_nan & set1_i32(0x003fffff))) | (is_nan & set1_i32(0x00400000)));
#endif
}

// Two bytes an element: lines as tiles want them. The padding of an odd K is in the packed strip.
struct HalfLines {
  static int64_t strip_bytes(int64_t in_features) { return (in_features + 1) / 2 * kXTileBytes; }
  static int64_t step_at(int64_t step) { return step * kTileBytes; }

 protected:
  const uint8_t* from_;
  int64_t lines_;

 public:
  REDLINE_INLINE bool begin(const uint8_t* strip, int64_t step, int64_t count, uint8_t*) {
    from_ = strip + step_at(step);
    lines_ = (count + 1) / 2;
    return true;
  }

 protected:
  template <class Line>
  REDLINE_INLINE void expand_lines(int64_t part, uint8_t* tile, Line line) const {
    for (int64_t i = part * kPartLines; i < (part + 1) * kPartLines; ++i) {
      if (i < lines_) line(from_ + i * kXTileBytes, tile + i * kXTileBytes);
      else __builtin_memset(tile + i * kXTileBytes, 0, kXTileBytes);
    }
  }
};

struct BF16Tiles : HalfLines {
  static constexpr bool kIsInTileOrder = true;
  REDLINE_INLINE void expand(int64_t part, uint8_t* tile) const {
    expand_lines(part, tile,
                 [](const uint8_t* from, uint8_t* to) REDLINE_LAMBDA { __builtin_memcpy(to, from, kXTileBytes); });
  }
};

struct F16Tiles : HalfLines {
  static constexpr bool kIsInTileOrder = false;
  REDLINE_INLINE void expand(int64_t part, uint8_t* tile) const {
    expand_lines(part, tile, [](const uint8_t* from, uint8_t* to) REDLINE_LAMBDA {
#ifdef __AVX512BF16__
      // Both conversions keep the order of elements: nothing moves across lanes.
      const __m512 low = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
      const __m512 high = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 32)));
      _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(high, low));
#else
      const StripI32 halves = load_strip_i32(from);
      StripF32 even, odd;
#pragma GCC unroll 4
      for (int i = 0; i < kStripVecs; ++i) {
        even.v[i] = clean(low_half_f32(halves.v[i]));
        odd.v[i] = clean(low_half_f32(shr<16>(halves.v[i])));
      }
      store_pair(to, even, odd);
#endif
    });
  }
};

#ifdef __AVX512FP16__

// Block formats by float16 arithmetic, 32 elements an instruction where float32 has 16 and two more to pair them up. Scale
// and min of a row are taken times a power of two that brings its largest value to [2^13, 2^15); value = scale * code +
// base is one rounding to 11 bits. What remains is to round to 8, by an integer multiply that shifts, and to add the
// difference of the exponents' biases and that power:
//   float16   s eeeee mmmmmmmmmm  ->  s 000 eeeee mmmmmmm + row's constant << 7  =  bfloat16
// A value of zero becomes 2^-15 in those units, at most 2^-20 of scale.

struct HalfRows {
  __m512h scale, base;  // of each row twice, beside each other
  __m512i exponent;
};

REDLINE_INLINE __m512i twice(__m256i halves) {
  const __m512i low = _mm512_cvtepu16_epi32(halves);
  return _mm512_or_si512(low, _mm512_slli_epi32(low, 16));
}

/// False where a row's numbers are too large, too small or none.
template <class Format>
REDLINE_INLINE bool half_rows(const uint8_t* block, int group, HalfRows& rows) {
  constexpr float kLargest = Format::kMaxCode;
  const __m512 scale = (__m512)Format::Head::scale(block, group, 0);
  const __m512i magnitude_bits = _mm512_set1_epi32(0x7fffffff);
  __m512i largest =
      _mm512_and_si512(_mm512_castps_si512(_mm512_mul_ps(scale, _mm512_set1_ps(kLargest))), magnitude_bits);
  __m512 min = _mm512_setzero_ps();
  if constexpr (Format::kHasMins) {
    min = (__m512)Format::Head::min(block, group, 0);
    largest = _mm512_max_epu32(largest, _mm512_and_si512(_mm512_castps_si512(min), magnitude_bits));
  }
  constexpr int kLeast = 28, kMost = 240;  // exponents
  const __mmask16 some = _mm512_test_epi32_mask(largest, largest);
  const __mmask16 fit = _mm512_cmple_epu32_mask(_mm512_sub_epi32(largest, _mm512_set1_epi32(kLeast << 23)),
                                                _mm512_set1_epi32((kMost - kLeast) << 23));
  if (static_cast<__mmask16>(some & ~fit) != 0) [[unlikely]]
    return false;
  const __m512i exponent = _mm512_and_si512(largest, _mm512_set1_epi32(0x7f800000));
  const __m512 power = _mm512_castsi512_ps(_mm512_sub_epi32(_mm512_set1_epi32((13 + 2 * 127) << 23), exponent));
  const auto halves = [](__m512 v)
                          REDLINE_LAMBDA { return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); };
  rows.scale = _mm512_castsi512_ph(twice(halves(_mm512_mul_ps(scale, power))));
  const __m512h offset = _mm512_set1_ph(static_cast<_Float16>(Format::kOffset));
  if constexpr (Format::kHasMins) {
    const __m512h half_min = _mm512_castsi512_ph(twice(halves(_mm512_mul_ps(min, power))));
    rows.base = _mm512_fnmsub_ph(offset, rows.scale, half_min);
  } else {
    rows.base = _mm512_mul_ph(_mm512_set1_ph(static_cast<_Float16>(-Format::kOffset)), rows.scale);
  }
  const __m512i low = _mm512_maskz_sub_epi32(some, _mm512_srli_epi32(exponent, 16), _mm512_set1_epi32(kLeast << 7));
  rows.exponent = _mm512_or_si512(low, _mm512_slli_epi32(low, 16));
  return true;
}
REDLINE_INLINE void store_halves(uint8_t* line, __m512h values, __m512i exponent) {
  const __m512i rounded = _mm512_mulhrs_epi16(_mm512_castph_si512(values), _mm512_set1_epi16(1 << 12));
  const __m512i bits = _mm512_and_si512(rounded, _mm512_set1_epi16(static_cast<int16_t>(0x8fff)));
  _mm512_storeu_si512(line, _mm512_add_epi16(bits, exponent));
}
/// Bytes 0 and 1, or 2 and 3, of each of 16 rows as numbers of two bytes.
REDLINE_INLINE __m512i pair_of(__m512i four, bool second) {
  const int first = second ? 0x80038002 : 0x80018000;
  return _mm512_shuffle_epi8(
      four, _mm512_add_epi32(_mm512_set4_epi32(0x000c000c, 0x00080008, 0x00040004, 0), _mm512_set1_epi32(first)));
}

/// What the 16 codes of a nibble stand for, twice: a neighbour's lowest bit is in the index.
template <class Format>
struct NibbleNumbers {
  alignas(64) _Float16 of[32];
  constexpr NibbleNumbers() : of{} {
    for (int i = 0; i < 32; ++i) {
      int code = i % 16;
      if constexpr (blocks::Strip<Format>::kHasTable) code = Format::kTable[code];
      of[i] = static_cast<_Float16>(Format::kHasMins ? code : code - Format::kOffset);
    }
  }
};
template <class Format>
constexpr NibbleNumbers<Format> kNibbleNumbers;

/// Lines 4 part .. 4 part + 3 of a tile.
template <class Format>
REDLINE_INLINE void expand_halves(const HalfRows& row, const uint8_t* codes, int64_t part, uint8_t* tile) {
  using Strip = blocks::Strip<Format>;
  if constexpr (Format::Planes::kBytes == blocks::Planes4::kBytes) {
    const __m512i numbers = _mm512_load_si512(kNibbleNumbers<Format>.of);
    const __m512i four = _mm512_loadu_si512(codes + part * 64);
    __m512i pair[4] = {pair_of(four, false), pair_of(four, true)};
    pair[2] = _mm512_srli_epi16(pair[0], 4), pair[3] = _mm512_srli_epi16(pair[1], 4);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m512h number = _mm512_castsi512_ph(_mm512_permutexvar_epi16(pair[i], numbers));
      const __m512h value =
          Format::kHasMins ? _mm512_fmadd_ph(number, row.scale, row.base) : _mm512_mul_ph(number, row.scale);
      store_halves(tile + (4 * part + i) * kXTileBytes, value, row.exponent);
    }
  } else {
#pragma GCC unroll 2
    for (int l = 0; l < 2; ++l) {
      const auto four = (__m512i)Strip::line(codes, 2 * static_cast<int>(part) + l, 0);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i)
        store_halves(tile + (4 * part + 2 * l + i) * kXTileBytes,
                     _mm512_fmadd_ph(_mm512_cvtepu16_ph(pair_of(four, i == 1)), row.scale, row.base), row.exponent);
    }
  }
}

#endif

template <class Format>
struct BlockTiles {
  using Strip = blocks::Strip<Format>;
  static constexpr bool kIsInTileOrder = false;
  static constexpr int kGroups = 32 / Format::kGroup, kGroupLines = Format::kGroup / 4;

  static int64_t strip_bytes(int64_t in_features) { return in_features / Format::kElements * Strip::kBytes; }
  static int64_t step_at(int64_t step) {
    return step / Strip::kSteps * Strip::kBytes + (step % Strip::kSteps ? Strip::kHeadBytes : 0) +
           step % Strip::kSteps * Strip::kStepBytes;
  }
  /// A step is whole: K is a multiple of 32.
  REDLINE_INLINE bool begin(const uint8_t* strip, int64_t step, int64_t, uint8_t* tile) {
    block_ = strip + step / Strip::kSteps * Strip::kBytes;
    step_ = static_cast<int>(step % Strip::kSteps);
    codes_ = Strip::step(block_, step_);
#ifdef __AVX512FP16__
    bool fit = half_rows<Format>(block_, step_ * kGroups, rows_[0]);
    if constexpr (kGroups == 2) fit &= half_rows<Format>(block_, step_ * kGroups + 1, rows_[1]);
    if (!fit) [[unlikely]] {
      expand_floats(block_, codes_, step_, tile);
      return false;
    }
#endif
    return true;
  }
  REDLINE_INLINE void expand(int64_t part, uint8_t* tile) const {
#ifdef __AVX512FP16__
    if constexpr (kGroups == 2)
      expand_halves<Format>({_mm512_mask_blend_ph(mask(part), rows_[0].scale, rows_[1].scale),
                             _mm512_mask_blend_ph(mask(part), rows_[0].base, rows_[1].base),
                             _mm512_mask_blend_epi16(mask(part), rows_[0].exponent, rows_[1].exponent)},
                            codes_, part, tile);
    else expand_halves<Format>(rows_[0], codes_, part, tile);
#else
    if (part == 0) expand_floats(block_, codes_, step_, tile);
#endif
  }

 private:
  const uint8_t *block_, *codes_;
  int step_;
#ifdef __AVX512FP16__
  HalfRows rows_[kGroups];
  /// All lanes in the second half of a tile.
  REDLINE_INLINE static __mmask32 mask(int64_t part) { return part < kTileParts / 2 ? 0 : ~__mmask32{0}; }
#endif

  [[gnu::noinline]] static void expand_floats(const uint8_t* block, const uint8_t* codes, int step, uint8_t* tile) {
    const VecI32 low = set1_i32(255);
    const VecF32 offset = set1(static_cast<float>(Format::kOffset));
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) {
      // value = scale * unsigned code - (scale * offset + min). The product with an offset is exact: it has at most 4 bits
      // beyond those of the scale's own.
      const int group = step * kGroups + g;
      StripF32 scale, base;
#pragma GCC unroll 4
      for (int i = 0; i < kStripVecs; ++i) {
        scale.v[i] = clean(floats_f32(Format::Head::scale(block, group, i)));
        base.v[i] = zero_f32() - offset * scale.v[i];
        if (Format::kHasMins) base.v[i] = base.v[i] - clean(floats_f32(Format::Head::min(block, group, i)));
      }
#pragma GCC unroll blocks::kUnrollLines
      for (int l = g * kGroupLines; l < (g + 1) * kGroupLines; ++l) {
        StripF32 value[4];
#pragma GCC unroll 4
        for (int i = 0; i < kStripVecs; ++i) {
          const VecI32 four = bytes_i32(Strip::line(codes, l, i));
          const VecI32 code[4] = {four & low, shr<8>(four) & low, shr<16>(four) & low, shr<24>(four)};
#pragma GCC unroll 4
          for (int j = 0; j < 4; ++j) value[j].v[i] = fma(to_f32(code[j]), scale.v[i], base.v[i]);
        }
        store_pair(tile + 2 * l * kXTileBytes, value[0], value[1]);
        store_pair(tile + (2 * l + 1) * kXTileBytes, value[2], value[3]);
      }
    }
  }
};

}  // namespace
}  // namespace redline::REDLINE_ISA_NS
