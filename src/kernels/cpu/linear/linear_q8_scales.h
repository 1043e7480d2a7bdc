// Scales of block formats in the form that linear_q8 reads: of 256 elements of a row panel, and of x.
#pragma once

#include "kernels/cpu/linear/linear_finish.h"
#include "tensor/blocks/all.h"

namespace redline::REDLINE_ISA_NS {
namespace {

// True if the set has vpdpbusd. Without it a product is several instructions.
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
inline constexpr bool kHasVnni = true;
#else
inline constexpr bool kHasVnni = false;
#endif
// True if products of narrow codes are summed in 16 bits.
inline constexpr bool kSumsPairs = kWidth > 4 && !kHasVnni;

// Number of shifts for which scales are kept times 2^shift: several tiles of rows look theirs up, a single one
// multiplies by it (keeps_one_shift).
inline constexpr int kOneShift = 1, kAllShifts = kQ8MaxShift + 1;

/// The properties that the arithmetic depends on: formats with equal ones share their loops.
template <int group, bool has_mins, bool is_narrow, bool has_start, bool has_corrections, bool is_signed, int lines16>
struct Arithmetic {
  static constexpr int kGroup = group;
  static constexpr bool kHasMins = has_mins;
  static constexpr bool kIsNarrow = is_narrow;  ///< scales are integers
  static constexpr bool kHasStart = has_start;  ///< integer sums start at a multiple of the sum of x codes
  static constexpr bool kHasCorrections = has_corrections;
  /// Magnitude and sign are multiplied, because vpmaddubsw saturates above 127.
  static constexpr bool kIsSigned = is_signed;
  static constexpr int kLines16 = lines16;  ///< lines whose products are added in 16 bits
};

// True if d of unsigned codes below 16 fits in 16 bits: as sums of pairs, 32 / 2 * 127 * 15 each; as a sum of 32, if
// the middle of the codes is subtracted.
template <class Format>
constexpr bool kIsNarrow = Format::kMaxCode + Format::kOffset <= 16;
template <class Format>
constexpr bool kIsSigned = !kHasVnni && Format::kMaxCode > 63;
template <class Format>
constexpr int kMiddle = kIsNarrow<Format> && !kSumsPairs && Format::kMaxCode == 15 ? 8 : 0;

template <class Format>
constexpr int lines16() {
  if (!kSumsPairs) return 1;
  if (kIsNarrow<Format>) return Format::kGroup / 4;
  if (kIsSigned<Format> || kWidth == 16) return 1;
  constexpr int kLargestPair = 2 * 127 * (Format::kMaxCode + Format::kOffset);
  int lines = 4;  // a group has 4 or 8; 8 was slower
  while (lines > 1 && lines * kLargestPair > 32767) lines /= 2;
  return lines;
}
// The type that reads codes. Formats without a table share these types too.
template <class Format, bool kHasTable = blocks::RowPanel<Format>::kHasTable>
struct CodesOf {
  using Type = typename Format::Planes;
};
template <class Format>
struct CodesOf<Format, true> {
  struct Type {
    static constexpr int kBytes = Format::Planes::kBytes;
    REDLINE_INLINE static blocks::Bytes line(const uint8_t* step, int l, int part) {
      return blocks::RowPanel<Format>::line(step, l, part);
    }
  };
};

// Factor of the part that is not a product of codes: the sums of x codes times `kCorrection` times the integer scale.
template <class Format>
constexpr int kCorrection = kIsNarrow<Format> ? kMiddle<Format> - (kSumsPairs ? Format::kOffset : 0) : 0;

template <class Format>
constexpr int kStartOffset = kIsSigned<Format> || (kIsNarrow<Format> && kSumsPairs) ? 0
                                                                                    : Format::kOffset + kMiddle<Format>;
template <class Format>
using ArithmeticOf = Arithmetic<Format::kGroup, Format::kHasMins, kIsNarrow<Format>, kStartOffset<Format> != 0,
                                kCorrection<Format> != 0, kIsSigned<Format>, lines16<Format>()>;

// Scales of 256 elements of a row panel. A pair has the values of two weight groups, as dot2_i16 reads them.
template <int kGroup, int kShifts>
struct alignas(64) Scales {
  /// Scale of each weight group, times 2^shift: float32, or an integer as dot2_i16 takes it.
  int32_t scale[kQ8Group / kGroup * kShifts][kRowPanelRows];
  int32_t corrections[kQ8Group / kGroup / 2][kRowPanelRows];  ///< pairs of kCorrection * scale
  int32_t mins[kQ8Group / kGroup / 2][kRowPanelRows];         ///< pairs of integers
  float unit[kRowPanelRows], min_unit[kRowPanelRows];         ///< unit of the integers; negative for minimums
};
// Bits of integer magnitudes: up to 2^9 for scales, so that |d| <= 256 * 127 * 15 over all groups and a shift by 3 give
// sums below 2^31; up to 2^12 for minimums.
inline constexpr int kScaleBits = 8, kMinBits = 11;
inline constexpr float kSmallestScale = 0x1p-100f;
inline constexpr int64_t kNumbersBytes = sizeof(Q8Numbers);

/// Converts `count` values to integers in proportion, the largest of 2^kBits to 2^(kBits + 1), in the lower 16 bits of
/// each lane. Returns their unit, a power of two. Values that are not finite make it infinite.
template <int kBits, int kMax>
REDLINE_INLINE VecF32 to_factors(const VecF32 (&values)[kMax], int count, VecI32 (&factors)[kMax]) {
  VecI32 bits = bits_i32(set1(kSmallestScale));
  for (int g = 0; g < count; ++g) bits = max(bits, bits_i32(values[g]) & set1_i32(0x7fffffff));
  const VecI32 exponent = bits & set1_i32(0x7f800000);
  const VecF32 inverse = bits_f32(set1_i32(static_cast<int32_t>((254u + kBits) << 23)) - exponent);
  // The sum is an integer in units of the last place of 2^23.
  for (int g = 0; g < count; ++g) factors[g] = bits_i32(fma(values[g], inverse, set1(0x1.8p23f)));
  return bits_f32(exponent) * set1(1.0f / (1 << kBits));
}
/// Stores factors[g] and factors[g + 1] as int16 of one lane, for every even g.
template <int kMax>
REDLINE_INLINE void store_pairs(const VecI32 (&factors)[kMax], int count, int32_t (*pairs)[kRowPanelRows], int at) {
  for (int g = 0; g < count; g += 2) {
    const VecI32 high = g + 1 < count ? factors[g + 1] : zero_i32();
    store(pairs[g / 2] + at, (factors[g] & set1_i32(0xffff)) | shl<16>(high), Full{});
  }
}

template <class Format, int kShifts>
REDLINE_INLINE void find_scales_part(const uint8_t* block, int count, int v, Scales<Format::kGroup, kShifts>& out) {
  using Head = typename Format::Head;
  constexpr int kInBlock = Format::kElements / Format::kGroup, kMax = kQ8Group / Format::kGroup;
  constexpr bool kHasFactors = requires { Head::unit(block, 0); };
  static_assert(!kHasFactors || Format::kElements == kQ8Group);
  const int at = v * kWidth;
  const auto head = [&](int g) REDLINE_LAMBDA { return block + g / kInBlock * blocks::RowPanel<Format>::kBytes; };
  VecF32 values[kMax];
  VecI32 factors[kMax];
  if constexpr (kIsNarrow<Format>) {
    VecF32 unit;
    if constexpr (kHasFactors) {
      for (int g = 0; g < count; ++g) factors[g] = {(decltype(VecI32::v))Head::factor(block, g, v)};
      unit = floats_f32(Head::unit(block, v));
    } else if constexpr (Format::kElements == kQ8Group) {  // one scale
      for (int g = 0; g < count; ++g) factors[g] = set1_i32(1);
      unit = floats_f32(Head::scale(block, 0, v));
    } else {
      for (int g = 0; g < count; ++g) values[g] = floats_f32(Head::scale(head(g), g % kInBlock, v));
      unit = to_factors<kScaleBits>(values, count, factors);
    }
    store(out.unit + at, unit, Full{});
    for (int g = 0; g < count; ++g) {
      VecI32 shifted = factors[g];
#pragma GCC unroll 4
      for (int shift = 0; shift < kShifts; ++shift, shifted = shifted + shifted) {
        VecI32 scale = shifted & set1_i32(0xffff);
        if (kSumsPairs) scale = scale | shl<16>(shifted);
        store(out.scale[g * kShifts + shift] + at, scale, Full{});
      }
      if (kCorrection<Format> != 0) factors[g] = factors[g] * set1_i32(kCorrection<Format>);
    }
    if (kCorrection<Format> != 0) store_pairs(factors, count, out.corrections, at);
  } else {
    for (int g = 0; g < count; ++g) {
      VecF32 scale = floats_f32(Head::scale(head(g), g % kInBlock, v));
#pragma GCC unroll 4
      for (int shift = 0; shift < kShifts; ++shift, scale = scale + scale)
        store(reinterpret_cast<float*>(out.scale[g * kShifts + shift]) + at, scale, Full{});
    }
  }
  if constexpr (Format::kHasMins) {
    VecF32 unit;
    if constexpr (kHasFactors) {
      for (int g = 0; g < count; ++g) factors[g] = {(decltype(VecI32::v))Head::min_factor(block, g, v)};
      unit = floats_f32(Head::min_unit(block, v));
    } else {
      for (int g = 0; g < count; ++g) values[g] = floats_f32(Head::min(head(g), g % kInBlock, v));
      unit = to_factors<kMinBits>(values, count, factors);
    }
    store(out.min_unit + at, zero_f32() - unit, Full{});
    store_pairs(factors, count, out.mins, at);
  }
}
/// Finds the scales of `count` weight groups of some row panels, from the beginning of a block.
template <class Format, int kShifts>
[[gnu::noinline]] void find_scales(const uint8_t* block, int64_t row_panel_bytes, int row_panels, int count,
                                   void* scales) {
  constexpr int kMax = kQ8Group / Format::kGroup;
  auto* out = static_cast<Scales<Format::kGroup, kShifts>*>(scales);
  for (int s = 0; s < row_panels; ++s, block += row_panel_bytes, ++out) {
    for (int v = 0; v < kRowPanelVecs; ++v) {
      if (kWidth > 4 && count == kMax) find_scales_part<Format, kShifts>(block, kMax, v, *out);  // unrolled
      else find_scales_part<Format, kShifts>(block, count, v, *out);
    }
  }
}

// Prefetch distance in each row panel, in 256 elements.
inline constexpr int64_t kPrefetchGroups = 3;

/// The layout of the packed row panels of a format.
struct Panels {
  int64_t row_panel_bytes, group_bytes;  ///< bytes of a row panel; of 256 elements of it
  /// Prefetch distance. Data prefetched with a group is either in its row panel, or entirely past it.
  int64_t ahead;
  int64_t first_step, step_bytes;  ///< offset and size of the codes of 32 elements
  int32_t offset;                  ///< kStartOffset
  /// Finds Scales<Format::kGroup, kShifts> of each row panel.
  void (*find_scales)(const uint8_t* block, int64_t row_panel_bytes, int row_panels, int count, void* scales);

  template <class Format, int kShifts>
  static Panels of(const LinearArgs& a) {
    using RowPanel = blocks::RowPanel<Format>;
    static_assert(Format::kElements == kQ8Step || Format::kElements == kQ8Group);
    const bool small = Format::kElements == kQ8Step;
    const int64_t row_panel_bytes = a.in_features / Format::kElements * RowPanel::kBytes,
                  group_bytes = kQ8Group / Format::kElements * RowPanel::kBytes;
    return {.row_panel_bytes = row_panel_bytes,
            .group_bytes = group_bytes,
            .ahead = row_panel_bytes - max_i64(0, row_panel_bytes / group_bytes - kPrefetchGroups) * group_bytes,
            .first_step = RowPanel::kHeadBytes,
            .step_bytes = small ? RowPanel::kBytes : RowPanel::kStepBytes,
            .offset = kStartOffset<Format>,
            .find_scales = redline::REDLINE_ISA_NS::find_scales<Format, kShifts>};
  }
  const uint8_t* row_panel(const LinearArgs& a, int64_t n) const {
    return static_cast<const uint8_t*>(a.weight) + n / kRowPanelRows * row_panel_bytes;
  }
};

REDLINE_INLINE int32_t load_int(const void* p) {
  int32_t value;
  __builtin_memcpy(&value, p, 4);
  return value;
}

REDLINE_INLINE const uint8_t* shifts_of(const uint8_t* numbers) {
  return numbers + __builtin_offsetof(Q8Numbers, shifts);
}

/// The position of the shifts of weight groups in Q8Numbers::packed_shifts.
template <int kGroup>
struct ShiftBits {
  alignas(64) int32_t at[16];
  constexpr ShiftBits() : at() {
    for (int g = 0; g < 16; ++g) at[g] = 2 * (g * kGroup / static_cast<int>(kQ8Step));
  }
};
template <int kGroup>
constexpr ShiftBits<kGroup> kShiftBits;
/// Returns the shifts of weight groups g, g + 1, ... of 256 elements.
template <int kGroup>
REDLINE_INLINE VecI32 shifts_of_groups(const Q8Numbers& numbers, int g) {
  return sar(set1_i32(numbers.packed_shifts), load_i32(kShiftBits<kGroup>.at + g)) & set1_i32(3);
}

/// Computes the start of each integer sum, -offset * (sum of x codes), for one row and `groups` groups of x. A vector
/// may write past the last.
template <int kGroup>
REDLINE_INLINE void find_starts(const Q8Numbers* numbers, int64_t groups, int32_t offset, int32_t* starts) {
  constexpr int kCount = kQ8Group / kGroup;
  for (; groups > 0; --groups, ++numbers, starts += kCount)
    for (int g = 0; g < kCount; g += kWidth) {
      const VecI32 sums = load_i16((kGroup == 32 ? numbers->sums32 : numbers->sums16) + g);
      store(starts + g, sar(sums, shifts_of_groups<kGroup>(*numbers, g)) * set1_i32(-offset), Full{});
    }
}

// Multiplies an integer scale by 2^shift. Zen 4 shifts at the same time as products; a multiplication would take the
// place of one. AVX2 has no shifts of 16 bits by a vector.
#ifdef __AVX512VNNI__
inline constexpr bool kShiftsScales = true;
REDLINE_INLINE VecI32 times_power(VecI32 scale, VecI32 shift) { return shl_i16(scale, shift); }
#else
inline constexpr bool kShiftsScales = false;
REDLINE_INLINE VecI32 times_power(VecI32 scale, VecI32 power) { return mul_i16(scale, power); }
#endif
/// Computes 2^shift of each 32 elements of a row's group: float32, or in the form that times_power reads. A vector may
/// write past the last.
template <class T>
REDLINE_INLINE void find_powers(const Q8Numbers& numbers, int32_t* powers) {
  for (int step = 0; step < kQ8Group / kQ8Step; step += kWidth) {
    const VecI32 shifts = shifts_of_groups<kQ8Step>(numbers, step);
    const VecI32 factors = kShiftsScales ? shifts : shl(set1_i32(kSumsPairs ? 0x10001 : 1), shifts);
    store(powers + step, T::kIsNarrow ? factors : shl<23>(shifts + set1_i32(127)), Full{});
  }
}

/// Size of arrays for vectors that hold one number for each 32 elements.
inline constexpr int kPowers = kQ8Group / kQ8Step > kWidth ? kQ8Group / kQ8Step : kWidth;

}  // namespace
}  // namespace redline::REDLINE_ISA_NS
