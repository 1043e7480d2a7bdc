// Converts block formats to bfloat16 tiles with float16 arithmetic: 32 elements per instruction, while float32 has 16
// and needs two more instructions to interleave them.
//
// value = scale * code + base, rounded to 11 bits once; what remains is rounding to 8 bits, by an integer multiply that
// shifts, and fixing the exponent:
//   float16   s eeeee mmmmmmmmmm  ->  s ??? eeeee mmmmmmm  =  bfloat16
// Nearly all weights are below 1 and not tiny: multiplied by 2^16 they are float16 numbers with the low five exponent
// bits of the bfloat16, and ??? is 011. Where a row's scale or min is larger, smaller or zero, the row is multiplied by
// its own power of two, which brings its largest value to [2^13, 2^15) and is subtracted from the exponent at the end.
// Zero becomes the smallest value with its exponent bits: at most 2^-20 of the row's largest.
//
// Formats with b-bit codes and an offset of half the range need neither table nor conversion: a code shifted to the top
// of the mantissa of 1 is 1 + code / 2^b, and 2^b scale (1 + code / 2^b) - 1.5 2^b scale is the value. For the second
// product to be exact the scale is rounded to 9 bits; it is finite for values below 1/3. (For a row with its own power
// of two the largest value is 1/4 of the above.) Permutations and conversions use a single port while tiles are
// multiplied; logic instructions use either.
#pragma once

#ifdef __AVX512FP16__

#include "kernels/cpu/simd_row_panel.h"
#include "kernels/cpu/tiles.h"
#include "tensor/blocks/all.h"

namespace redline::REDLINE_ISA_NS {
namespace {

/// Keeps a constant in a register. GCC would rebuild it for every tile, on a port that the conversion needs.
REDLINE_INLINE __m512i kept(__m512i v) {
  asm("" : "+v"(v));
  return v;
}
/// Returns 16 halves, each duplicated to the adjacent lane.
REDLINE_INLINE __m512i twice(__m256i halves) {
  const __m512i low = _mm512_cvtepu16_epi32(halves);
  return _mm512_or_si512(low, _mm512_slli_epi32(low, 16));
}
REDLINE_INLINE __m256i halves_of(__m512 v) { return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

/// Values of the 16 nibble codes, stored twice: the fifth index bit is the lowest bit of the adjacent code.
template <class Format>
struct NibbleNumbers {
  alignas(64) _Float16 of[32];
  constexpr NibbleNumbers() : of{} {
    for (int i = 0; i < 32; ++i) {
      int code = i % 16;
      if constexpr (blocks::RowPanel<Format>::kHasTable) code = Format::kTable[code];
      of[i] = static_cast<_Float16>(Format::kHasMins ? code : code - Format::kOffset);
    }
  }
};
template <class Format>
constexpr NibbleNumbers<Format> kNibbleNumbers;

/// Scale and base of the 16 rows, each duplicated to the adjacent lane.
struct HalfRows {
  __m512i scale, base;
};

/// The converter. It holds only constants; construct it before a loop over tiles.
template <class Format>
class HalfExpander {
 public:
  static constexpr int kGroups = 32 / Format::kGroup;

  REDLINE_INLINE HalfExpander() {
    const __m512i rows = _mm512_set4_epi32(0x000c000c, 0x00080008, 0x00040004, 0);
    pair_[0] = kept(_mm512_add_epi32(rows, _mm512_set1_epi32(static_cast<int>(0x80018000u))));
    pair_[1] = kept(_mm512_add_epi32(rows, _mm512_set1_epi32(static_cast<int>(0x80038002u))));
    round_ = kept(_mm512_set1_epi16(1 << 12));
    sign_and_number_ = kept(_mm512_set1_epi16(static_cast<int16_t>(0x8fff)));
    exponent_ = kept(_mm512_set1_epi16(3 << 12));
    if constexpr (kIsFraction) {
      for (int i = 0; i < kShifts; ++i) shift_[i] = kept(_mm512_set1_epi64(static_cast<int64_t>(shift_control(i))));
      code_bits_ = kept(_mm512_set1_epi16(((1 << kBits) - 1) << (10 - kBits)));
      one_ = kept(_mm512_set1_epi16(0x3c00));
    } else if constexpr (kIsNibbles) numbers_ = kept(_mm512_load_si512(kNibbleNumbers<Format>.of));
    if constexpr (kIsOneHalf) {
      alignas(64) static constexpr uint16_t kTwice[32] = {0, 0, 1, 1, 2,  2,  3,  3,  4,  4,  5,  5,  6,  6,  7,  7,
                                                          8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15};
      twice_ = kept(_mm512_load_si512(kTwice));
      exponent_bits_ = kept(_mm512_set1_epi16(kIsFraction ? 0x7fff : 0x7c00));
      least_ = kept(_mm512_set1_epi16(1 << 10));
      range_ =
          kept(_mm512_set1_epi16(static_cast<int16_t>(kIsFraction ? kMaxScale - (1 << 10) : (kMaxExponent - 1) << 10)));
      if constexpr (kIsFraction) power_ = kept(_mm512_set1_epi16(static_cast<int16_t>(((16 + kBits) << 10) + 2)));
    }
  }

  /// Prepares the rows for all parts of a tile. Returns false if the exponents of a row's scale and min do not fit.
  REDLINE_INLINE bool begin(const uint8_t* block, int step, HalfRows (&rows)[kGroups]) const {
    bool all = true;
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) all &= compute_rows(block, step * kGroups + g, rows[g]);
    return all;
  }
  /// Converts 64-byte rows [4 part, 4 part + 4) of a tile.
  REDLINE_INLINE void expand(const uint8_t* codes, const HalfRows (&rows)[kGroups], int64_t part, uint8_t* tile) const {
    expand_part(codes, rows[kGroups == 2 ? part / 2 : 0], part, tile, [&](__m512i rounded) REDLINE_LAMBDA {
      return _mm512_ternarylogic_epi32(rounded, sign_and_number_, exponent_, 0xea);  // (a & b) | c
    });
  }
  /// Converts a whole tile that begin() rejected. Returns false if a scale or min is too large or too small, or not
  /// finite.
  bool expand_scaled(const uint8_t* block, const uint8_t* codes, int step, uint8_t* tile) const {
    HalfRows rows[kGroups];
    __m512i exponents[kGroups];
    for (int g = 0; g < kGroups; ++g)
      if (!compute_scaled_rows(block, step * kGroups + g, rows[g], exponents[g])) return false;
    for (int64_t part = 0; part < 4; ++part) {
      const int64_t g = kGroups == 2 ? part / 2 : 0;
      expand_part(codes, rows[g], part, tile, [&](__m512i rounded) REDLINE_LAMBDA {
        return _mm512_add_epi16(_mm512_and_si512(rounded, sign_and_number_), exponents[g]);
      });
    }
    return true;
  }

 private:
  using RowPanel = blocks::RowPanel<Format>;
  static constexpr bool kIsNibbles = Format::Planes::kBytes == blocks::Planes4::kBytes;
  /// True if values come signed from a table, so that there is no base to add.
  static constexpr bool kIsProduct = kIsNibbles && !Format::kHasMins;
  /// True if the head is one half per row.
  static constexpr bool kIsOneHalf = Format::Head::kBytes == 32 && !Format::kHasMins;
  static constexpr int log2_up(int n) { return n <= 1 ? 0 : 1 + log2_up((n + 1) / 2); }
  /// True for codes of kBits bits with 0 in the middle of the range, which are shifted to the top of a mantissa.
  static constexpr bool kIsFraction =
      kIsOneHalf && !RowPanel::kHasTable && Format::kOffset >= 8 && (Format::kOffset & (Format::kOffset - 1)) == 0;
  static constexpr int kBits = log2_up(2 * Format::kOffset), kShifts = kIsNibbles ? 4 : 2;
  /// Largest float16 scale whose values stay below 2^16 / 3, so that 1.5 2^b scale is finite. (A multiple of 4, so
  /// rounding to 9 bits keeps it.)
  static constexpr int kMaxScale = ((30 - 16 - kBits) << 10) + 0x150;
  /// Returns the vpmultishiftqb control: the start bit of each 8-bit field, for the 4 bytes of two rows. It is for
  /// vector i of a part, as 16-bit words, each with its code in the upper bits of ten.
  static constexpr uint64_t shift_control(int i) {
    uint64_t control = 0;
    for (int word = 0; word < 4; ++word) {
      const int byte = word / 2 * 4 + i % 2 * 2 + word % 2, first = 8 * byte + i / 2 * 4 - (10 - kBits);
      control |= (static_cast<uint64_t>((first + 64) % 64) | static_cast<uint64_t>((first + 8) % 64) << 8)
                 << (16 * word);
    }
    return control;
  }
  /// Largest float16 exponent of a scale whose values are below 1.
  static constexpr int kMaxExponent = 14 - log2_up(Format::kMaxCode);

  template <class Finish>
  REDLINE_INLINE void expand_part(const uint8_t* codes, const HalfRows& row, int64_t part, uint8_t* tile,
                                  const Finish& finish) const {
    tile += 4 * part * kXTileBytes;
    if constexpr (kIsFraction) {
      // The vectors are loaded once, because half of them cross a cache line.
      __m512i four[2];
      if constexpr (kIsNibbles) {
        four[0] = four[1] = kept(_mm512_loadu_si512(codes + part * 64));
      } else {
        four[0] = kept((__m512i)RowPanel::line(codes, 2 * static_cast<int>(part), 0));
        four[1] = kept((__m512i)RowPanel::line(codes, 2 * static_cast<int>(part) + 1, 0));
      }
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const __m512i code = _mm512_multishift_epi64_epi8(shift_[i % kShifts], four[i / 2]);
        store_line(tile + i * kXTileBytes, _mm512_ternarylogic_epi32(code, code_bits_, one_, 0xea), row, finish);
      }
    } else if constexpr (kIsNibbles) {
      const __m512i four = _mm512_loadu_si512(codes + part * 64);
      __m512i pair[4] = {_mm512_shuffle_epi8(four, pair_[0]), _mm512_shuffle_epi8(four, pair_[1])};
      pair[2] = _mm512_srli_epi16(pair[0], 4), pair[3] = _mm512_srli_epi16(pair[1], 4);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i)
        store_line(tile + i * kXTileBytes, _mm512_permutexvar_epi16(pair[i], numbers_), row, finish);
    } else {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const auto four = (__m512i)RowPanel::line(codes, 2 * static_cast<int>(part) + i / 2, 0);
        const __m512h code = _mm512_cvtepu16_ph(_mm512_shuffle_epi8(four, pair_[i % 2]));
        store_line(tile + i * kXTileBytes, _mm512_castph_si512(code), row, finish);
      }
    }
  }
  template <class Finish>
  REDLINE_INLINE void store_line(uint8_t* line, __m512i numbers, const HalfRows& row, const Finish& finish) const {
    const auto number = (__m512h)numbers, scale = (__m512h)row.scale;
    const __m512h value =
        kIsProduct && !kIsFraction ? _mm512_mul_ph(number, scale) : _mm512_fmadd_ph(number, scale, (__m512h)row.base);
    _mm512_storeu_si512(line, finish(_mm512_mulhrs_epi16((__m512i)value, round_)));
  }
  REDLINE_INLINE static __m512i base_of(__m512i scale) {
    return (__m512i)_mm512_mul_ph(_mm512_set1_ph(static_cast<_Float16>(kIsFraction ? -1.5f : -Format::kOffset)),
                                  (__m512h)scale);
  }
  /// Truncates to 9 bits; the caller has added half a unit.
  REDLINE_INLINE static __m512i cut_to_9_bits(__m512i scale) { return _mm512_and_si512(scale, _mm512_set1_epi16(-4)); }

  REDLINE_INLINE static void set_rows(__m512 scale, __m512 min, HalfRows& row) {
    row.scale = twice(halves_of(scale));
    if constexpr (kIsFraction) {
      const auto range = _mm512_set1_ph(static_cast<_Float16>(1 << kBits));
      row.scale = (__m512i)_mm512_mul_ph((__m512h)row.scale, range);
      row.scale = cut_to_9_bits(_mm512_add_epi16(row.scale, _mm512_set1_epi16(2)));
    }
    if constexpr (Format::kHasMins) {
      const auto offset = _mm512_set1_ph(static_cast<_Float16>(Format::kOffset));
      row.base = (__m512i)_mm512_fnmsub_ph(offset, (__m512h)row.scale, (__m512h)twice(halves_of(min)));
    } else if constexpr (kIsFraction || !kIsProduct) {
      row.base = base_of(row.scale);
    }
  }
  /// Returns the maximum of |scale * code| or |min|.
  REDLINE_INLINE static __m512i largest_of(const uint8_t* block, int group, __m512& scale, __m512& min) {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    scale = (__m512)Format::Head::scale(block, group, 0), min = _mm512_setzero_ps();
    const __m512i largest = _mm512_and_si512((__m512i)(scale * _mm512_set1_ps(Format::kMaxCode)), magnitude);
    if constexpr (!Format::kHasMins) return largest;
    min = (__m512)Format::Head::min(block, group, 0);
    return _mm512_max_epu32(largest, _mm512_and_si512((__m512i)min, magnitude));
  }
  REDLINE_INLINE bool compute_rows(const uint8_t* block, int group, HalfRows& row) const {
    if constexpr (kIsOneHalf) {
      const __m512i scale = _mm512_permutexvar_epi16(
          twice_, _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(block))));
      const __m512i exponent = _mm512_and_si512(scale, exponent_bits_);
      if constexpr (kIsFraction) row.scale = cut_to_9_bits(_mm512_add_epi16(scale, power_));
      else row.scale = _mm512_add_epi16(scale, _mm512_set1_epi16(16 << 10));
      if constexpr (kIsFraction || !kIsProduct) row.base = base_of(row.scale);
      return _mm512_cmpgt_epu16_mask(_mm512_sub_epi16(exponent, least_), range_) == 0;
    } else {
      // Bounds for values below 1; where there are both, for scale and min together. A value that rounds to 1 becomes
      // the float16 infinity, whose bits are correct here.
      constexpr int kMin = 127 - 11, kMax = Format::kHasMins ? 127 - 1 : 127;
      __m512 scale, min;
      const __m512i largest = largest_of(block, group, scale, min);
      const __m512 power = _mm512_set1_ps(0x1p16f);
      set_rows(scale * power, min * power, row);
      return _mm512_cmpge_epu32_mask(_mm512_sub_epi32(largest, _mm512_set1_epi32(kMin << 23)),
                                     _mm512_set1_epi32((kMax - kMin) << 23)) == 0;
    }
  }
  static bool compute_scaled_rows(const uint8_t* block, int group, HalfRows& row, __m512i& exponents) {
    __m512 scale, min;
    const __m512i largest = largest_of(block, group, scale, min);
    constexpr int kTop = kIsFraction ? 11 : 13, kMin = kTop + 15, kMax = 240;  // exponents
    const __mmask16 some = _mm512_test_epi32_mask(largest, largest);
    const __mmask16 misfit = _mm512_cmpgt_epu32_mask(_mm512_sub_epi32(largest, _mm512_set1_epi32(kMin << 23)),
                                                     _mm512_set1_epi32((kMax - kMin) << 23));
    if ((some & misfit) != 0) return false;
    const __m512i exponent = _mm512_and_si512(largest, _mm512_set1_epi32(0x7f800000));
    const auto power = (__m512)_mm512_sub_epi32(_mm512_set1_epi32((kTop + 2 * 127) << 23), exponent);
    set_rows(scale * power, min * power, row);
    const __m512i low = _mm512_maskz_sub_epi32(some, _mm512_srli_epi32(exponent, 16), _mm512_set1_epi32(kMin << 7));
    exponents = _mm512_or_si512(low, _mm512_slli_epi32(low, 16));
    return true;
  }

  __m512i pair_[2];  // bytes 0 and 1, or 2 and 3, of each of 16 rows as 16-bit words
  __m512i shift_[4], code_bits_, one_, power_;
  __m512i round_, sign_and_number_, exponent_, numbers_, twice_, exponent_bits_, least_, range_;
};

}  // namespace
}  // namespace redline::REDLINE_ISA_NS

#endif
