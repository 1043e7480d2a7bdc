// Conversion of packed weights to bfloat16 tile order, the operands of linear_tiles.h.
//
// A tile is 16 x 64 bytes: each 64 bytes are 16 rows x 2 adjacent elements of K. A float is rounded to nearest. So is
// the value of a block format, computed within two float32 roundings of blocks::unpack or, where the CPU has float16
// arithmetic, within three roundings to 11 bits of scale * code and min (or the scale to 9 bits and one to 11).
#pragma once

#include "kernels/cpu/linear/linear_tiles_halves.h"
#include "kernels/cpu/simd_row_panel.h"
#include "kernels/cpu/tiles.h"
#include "tensor/blocks/all.h"

namespace redline::REDLINE_ISA_NS {
namespace {

/// Stores adjacent elements of 16 rows as 64 bytes, rounded to nearest, ties away from zero: one instruction fewer than
/// ties to even. Values are finite, infinite or the NaN made by clean(): adding half a unit must not turn a NaN into
/// zero.
REDLINE_INLINE void store_pair(uint8_t* line, const RowPanelF32& even, const RowPanelF32& odd) {
  const VecI32 half = set1_i32(0x8000), high = set1_i32(static_cast<int32_t>(0xffff0000u));
#pragma GCC unroll 4
  for (int i = 0; i < kRowPanelVecs; ++i)
    store(reinterpret_cast<int32_t*>(line) + i * kWidth,
          shr<16>(bits_i32(even.v[i]) + half) | ((bits_i32(odd.v[i]) + half) & high), Full{});
}
/// Replaces every NaN by one whose low bits are clear.
REDLINE_INLINE VecF32 clean(VecF32 v) {
#if defined(__AVX512F__)
  return {_mm512_fixupimm_ps(v.v, v.v, _mm512_set1_epi32(0x11111133), 0)};  // NaN: the indefinite NaN; else unchanged
#else
  const VecI32 bits = bits_i32(v);
  const VecI32 is_nan = sar<31>(set1_i32(0x7f800000) - (bits & set1_i32(0x7fffffff)));
  return bits_f32((bits ^ (bits & is_nan & set1_i32(0x003fffff))) | (is_nan & set1_i32(0x00400000)));
#endif
}

inline constexpr int64_t kTileBytes = kXTileRows * kXTileBytes;
inline constexpr int64_t kStepElements = 32;  // elements of K in a tile
inline constexpr int64_t kTileParts = 4, kPartLines = kXTileRows / kTileParts;

// A weight type and its conversion to tiles, a few tens of vector instructions at a time:
//   kIsInTileOrder                       a packed row panel already is a sequence of tiles
//   row_panel_bytes(in_features)             bytes of a packed row panel
//   step_at(step)                        offset of 32 elements of K in a row panel
//   kStepBytes                           bytes of 32 elements of K in a row panel, on average
//   Constants                            what a loop over tiles keeps in registers
//   begin(c, row_panel, step, count, tile)   starts the tile of elements [32 step, 32 step + count) of K, padded with
//                                        zeros; false: the tile is already complete
//   expand(c, part, tile)                64-byte rows [4 part, 4 part + 4) of that tile

struct NoConstants {};

// Weights of two bytes per element, which are already in tile row order. The packed row panel includes the padding of
// an odd K.
struct HalfLines {
  using Constants = NoConstants;
  static int64_t row_panel_bytes(int64_t in_features) { return (in_features + 1) / 2 * kXTileBytes; }
  static int64_t step_at(int64_t step) { return step * kTileBytes; }
  static constexpr int64_t kStepBytes = kTileBytes;

 protected:
  const uint8_t* from_;
  int64_t lines_;

 public:
  REDLINE_INLINE bool begin(Constants, const uint8_t* row_panel, int64_t step, int64_t count, uint8_t*) {
    from_ = row_panel + step_at(step);
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
  REDLINE_INLINE void expand(Constants, int64_t part, uint8_t* tile) const {
    expand_lines(part, tile,
                 [](const uint8_t* from, uint8_t* to) REDLINE_LAMBDA { __builtin_memcpy(to, from, kXTileBytes); });
  }
};

struct F16Tiles : HalfLines {
  static constexpr bool kIsInTileOrder = false;
  REDLINE_INLINE void expand(Constants, int64_t part, uint8_t* tile) const {
    expand_lines(part, tile, [](const uint8_t* from, uint8_t* to) REDLINE_LAMBDA {
#ifdef __AVX512BF16__
      // Both conversions keep the element order: nothing crosses lanes.
      const __m512 low = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
      const __m512 high = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 32)));
      _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(high, low));
#else
      const RowPanelI32 halves = load_row_panel_i32(from);
      RowPanelF32 even, odd;
#pragma GCC unroll 4
      for (int i = 0; i < kRowPanelVecs; ++i) {
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
  using RowPanel = blocks::RowPanel<Format>;
  static constexpr bool kIsInTileOrder = false;
  static constexpr int kGroups = 32 / Format::kGroup, kGroupLines = Format::kGroup / 4;

  static int64_t row_panel_bytes(int64_t in_features) { return in_features / Format::kElements * RowPanel::kBytes; }
  static constexpr int64_t kStepBytes = RowPanel::kBytes / RowPanel::kSteps;
  static int64_t step_at(int64_t step) {
    return step / RowPanel::kSteps * RowPanel::kBytes + (step % RowPanel::kSteps ? RowPanel::kHeadBytes : 0) +
           step % RowPanel::kSteps * RowPanel::kStepBytes;
  }
#ifdef __AVX512FP16__
  using Constants = HalfExpander<Format>;
#else
  using Constants = NoConstants;
#endif
  /// Starts a tile. A step is complete because K is a multiple of 32.
  REDLINE_INLINE bool begin(const Constants& constants, const uint8_t* row_panel, int64_t step, int64_t,
                            uint8_t* tile) {
    block_ = row_panel + step / RowPanel::kSteps * RowPanel::kBytes;
    step_ = static_cast<int>(step % RowPanel::kSteps);
    codes_ = RowPanel::step(block_, step_);
#ifdef __AVX512FP16__
    if (!constants.begin(block_, step_, rows_)) [[unlikely]] {
      expand_whole(block_, codes_, step_, tile);
      return false;
    }
#else
    (void)constants, (void)tile;
#endif
    return true;
  }
  REDLINE_INLINE void expand(const Constants& constants, int64_t part, uint8_t* tile) const {
#ifdef __AVX512FP16__
    constants.expand(codes_, rows_, part, tile);
#else
    (void)constants;
    if (part == 0) expand_floats(block_, codes_, step_, tile);
#endif
  }

 private:
  const uint8_t *block_, *codes_;
  int step_;
#ifdef __AVX512FP16__
  HalfRows rows_[kGroups];

  [[gnu::noinline]] static void expand_whole(const uint8_t* block, const uint8_t* codes, int step, uint8_t* tile) {
    const Constants constants;
    if (!constants.expand_scaled(block, codes, step, tile)) expand_floats(block, codes, step, tile);
  }
#endif

  [[gnu::noinline]] static void expand_floats(const uint8_t* block, const uint8_t* codes, int step, uint8_t* tile) {
    const VecI32 low = set1_i32(255);
    const VecF32 offset = set1(static_cast<float>(Format::kOffset));
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) {
      // value = scale * unsigned code - (scale * offset + min). scale * offset is exact: it needs at most 4 bits more
      // than the scale.
      const int group = step * kGroups + g;
      RowPanelF32 scale, base;
#pragma GCC unroll 4
      for (int i = 0; i < kRowPanelVecs; ++i) {
        scale.v[i] = clean(floats_f32(Format::Head::scale(block, group, i)));
        base.v[i] = zero_f32() - offset * scale.v[i];
        if (Format::kHasMins) base.v[i] = base.v[i] - clean(floats_f32(Format::Head::min(block, group, i)));
      }
#pragma GCC unroll blocks::kUnrollLines
      for (int l = g * kGroupLines; l < (g + 1) * kGroupLines; ++l) {
        RowPanelF32 value[4];
#pragma GCC unroll 4
        for (int i = 0; i < kRowPanelVecs; ++i) {
          const VecI32 four = bytes_i32(RowPanel::line(codes, l, i));
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
