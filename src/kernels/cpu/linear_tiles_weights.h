// Packed weights brought into the order of tile products, rounded to bfloat16: what linear_tiles.h multiplies by.
//
// A tile is 16 lines of 64 bytes, a line 16 rows x 2 neighbouring elements of K. A weight is rounded to nearest from a
// float32 value: its own, or for block formats within two float32 roundings of what blocks::unpack gives.
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
  const VecI32 bits = bits_i32(v);
  const VecI32 is_nan = sar<31>(set1_i32(0x7f800000) - (bits & set1_i32(0x7fffffff)));
  return bits_f32((bits ^ (bits & is_nan & set1_i32(0x003fffff))) | (is_nan & set1_i32(0x00400000)));
}

// Two bytes an element: lines as tiles want them. The padding of an odd K is in the packed strip.
struct HalfLines {
  static int64_t strip_bytes(int64_t in_features) { return (in_features + 1) / 2 * kXTileBytes; }
  static int64_t step_at(int64_t step) { return step * kTileBytes; }
  template <class Line>
  REDLINE_INLINE static void expand_lines(const uint8_t* strip, int64_t step, int64_t count, uint8_t* tile, Line line) {
    const uint8_t* from = strip + step_at(step);
    const int64_t lines = (count + 1) / 2;
    for (int64_t i = 0; i < lines; ++i) line(from + i * kXTileBytes, tile + i * kXTileBytes);
    for (int64_t i = lines; i < kXTileRows; ++i) __builtin_memset(tile + i * kXTileBytes, 0, kXTileBytes);
  }
};

struct BF16Tiles : HalfLines {
  static constexpr bool kIsInTileOrder = true;
  static void expand(const uint8_t* strip, int64_t step, int64_t count, uint8_t* tile) {
    expand_lines(strip, step, count, tile,
                 [](const uint8_t* from, uint8_t* to) { __builtin_memcpy(to, from, kXTileBytes); });
  }
};

struct F16Tiles : HalfLines {
  static constexpr bool kIsInTileOrder = false;
  static void expand(const uint8_t* strip, int64_t step, int64_t count, uint8_t* tile) {
    expand_lines(strip, step, count, tile, [](const uint8_t* from, uint8_t* to) {
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
  static void expand(const uint8_t* strip, int64_t step, int64_t, uint8_t* tile) {
    const uint8_t* block = strip + step / Strip::kSteps * Strip::kBytes;
    const uint8_t* codes = Strip::step(block, static_cast<int>(step % Strip::kSteps));
    const VecI32 low = set1_i32(255);
    const VecF32 offset = set1(static_cast<float>(Format::kOffset));
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) {
      // value = scale * unsigned code - (scale * offset + min). The product with an offset is exact: it has at most 4 bits
      // beyond those of the scale's own.
      const int group = static_cast<int>(step % Strip::kSteps) * kGroups + g;
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
