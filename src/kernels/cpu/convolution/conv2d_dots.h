// The products of conv2d_tiles.h for cores without a tile unit: sums are registers, and both operands are read in
// place.
//
// ConvDots, by vdpbf16ps: pairs of channels are summed in the order of the weight, the order of linear_bf16_dot over
// im2col patches. ConvF32, by float32 multiply-adds, channel after channel: weights of other types are expanded into L1
// once for all pixels of a region, because their shifts would take slots of the multiplications.
#pragma once

#include "kernels/cpu/convolution/conv2d.h"
#include "kernels/cpu/simd_row_panel.h"

namespace redline::REDLINE_ISA_NS {
namespace {

// Units of ConvTilesRun that have no tiles. A step multiplies 4 bytes of a pixel by 64 bytes of the weight.

struct ConvDots {
  static constexpr int kSteps = kConvBlock / 2, kUnrolled = 1;  // steps for 32 channels of a tap
  REDLINE_INLINE static VecI32 weight(const uint8_t* p) { return load_i32(p); }
  REDLINE_INLINE static VecI32 pixel(const uint8_t* p) {
    int32_t both;
    __builtin_memcpy(&both, p, 4);
    return set1_i32(both);
  }
  REDLINE_INLINE static VecF32 product(VecF32 sum, VecI32 w, VecI32 x) { return dot2_bf16(sum, w, x); }
};

struct ConvF32 {
  static constexpr int kSteps = kConvBlock, kUnrolled = 4;
  REDLINE_INLINE static VecF32 weight(const uint8_t* p) { return load(reinterpret_cast<const float*>(p), Full{}); }
  REDLINE_INLINE static VecF32 pixel(const uint8_t* p) { return set1(*reinterpret_cast<const float*>(p)); }
  REDLINE_INLINE static VecF32 product(VecF32 sum, VecF32 w, VecF32 x) { return fma(w, x, sum); }
};

// Steps of 32 channels of a tap between spills of the sums: two row panels of bfloat16 weights stay in L1. Half as many
// with float32.
constexpr int64_t kConvDotSteps = 12;
// Lines of 16 float32 weights of a row panel in such a step of K, which has at least all taps.
constexpr int64_t kConvF32Lines = kConvMaxKernel * kConvMaxKernel * kConvBlock;
static_assert(kConvF32Lines >= kConvDotSteps / 2 * kConvBlock);

/// Returns `lines` channels of a row panel in float32: in place, or expanded into `to`.
REDLINE_INLINE const uint8_t* conv_weights_f32(DType type, const uint8_t* packed, int64_t lines, float* to) {
  if (type == DType::kF32) return packed;
  const VecI32 high = set1_i32(static_cast<int32_t>(0xffff0000u));
  for (int64_t i = 0; i < lines; i += 2)
    for (int v = 0; v < kRowPanelVecs; ++v) {
      const VecI32 pair = load_i32(packed + i * 32 + v * kWidth * 4);
      float* even = to + i * kRowPanelRows + v * kWidth;
      const bool is_f16 = type == DType::kF16;
      store(even, is_f16 ? low_half_f32(pair) : bits_f32(shl<16>(pair)), Full{});
      store(even + kRowPanelRows, is_f16 ? low_half_f32(shr<16>(pair)) : bits_f32(pair & high), Full{});
    }
  return reinterpret_cast<const uint8_t*>(to);
}

/// A tile of products: the pixels of one pixel panel by one or two row panels.
struct ConvDotTile {
  const uint8_t* x;  // the first pixel, of the first tap and channel block
  const uint8_t* w[2];
  int64_t blocks, taps;
  const int64_t* tap_at;  // [taps] offsets in x
  int64_t pixel_bytes;    // between pixels
  int64_t plane_bytes;    // between channel blocks
  const float* from;      // [16 pixels][16] of the first row panel, then of the second; nullptr: zeros
  float* to;
};

// Distance between row panels in `from` and `to`.
constexpr int64_t kConvDotPanel = 16 * kRowPanelRows;

template <class Unit, int kPixels, int kRowPanels, bool kIsDense>
[[gnu::noinline]] void conv_dots(const ConvDotTile& t) {
  constexpr int kVecs = kRowPanels * kRowPanelVecs;
  const int64_t pixel_bytes = kIsDense ? Unit::kSteps * 4 : t.pixel_bytes;
  // Returns the offset of the sums of vector s of the row panels.
  const auto sums_at = [](int r, int s) REDLINE_LAMBDA {
    return s / kRowPanelVecs * kConvDotPanel + r * kRowPanelRows + s % kRowPanelVecs * kWidth;
  };
  VecF32 sum[kPixels][kVecs];
  unroll<kPixels>([&](auto r) REDLINE_LAMBDA {
    unroll<kVecs>([&](auto s)
                      REDLINE_LAMBDA { sum[r][s] = t.from ? load(t.from + sums_at(r, s), Full{}) : zero_f32(); });
  });
  const uint8_t *plane = t.x, *w0 = t.w[0], *w1 = t.w[1];
  for (int64_t block = t.blocks; block > 0; --block, plane += t.plane_bytes)
    for (int64_t tap = 0; tap < t.taps; ++tap) {
      const uint8_t* x = plane + t.tap_at[tap];
      for (int step = 0; step < Unit::kSteps; step += Unit::kUnrolled) {
        unroll<Unit::kUnrolled>([&](auto i) REDLINE_LAMBDA {
          decltype(Unit::weight(w0)) w[kVecs];
          unroll<kVecs>([&](auto s) REDLINE_LAMBDA {
            w[s] = Unit::weight((s < kRowPanelVecs ? w0 : w1) + i * 64 + s % kRowPanelVecs * kWidth * 4);
          });
          unroll<kPixels>([&](auto r) REDLINE_LAMBDA {
            const auto both = Unit::pixel(x + r * pixel_bytes + i * 4);
            unroll<kVecs>([&](auto s) REDLINE_LAMBDA { sum[r][s] = Unit::product(sum[r][s], w[s], both); });
          });
        });
        x += 4 * Unit::kUnrolled;
        w0 += 64 * Unit::kUnrolled;
        w1 += 64 * Unit::kUnrolled;
      }
    }
  unroll<kPixels>([&](auto r) REDLINE_LAMBDA {
    unroll<kVecs>([&](auto s) REDLINE_LAMBDA { store(t.to + sums_at(r, s), sum[r][s], Full{}); });
  });
}

template <class Unit, int kPixels, int kRowPanels>
REDLINE_INLINE void conv_dots_pixels(ConvDotTile& t) {
  if (t.pixel_bytes == Unit::kSteps * 4) conv_dots<Unit, kPixels, kRowPanels, true>(t);
  else conv_dots<Unit, kPixels, kRowPanels, false>(t);
  t.x += kPixels * t.pixel_bytes;
  if (t.from) t.from += kPixels * kRowPanelRows;
  t.to += kPixels * kRowPanelRows;
}

/// Multiplies all 16 pixels. With 32 registers two row panels have 16 sums that share a broadcast, or one; with 16
/// registers one row panel at a time uses 12 or 10 of them, or 8 where vectors are short.
template <class Unit, int kRowPanels>
void conv_dots_panel(ConvDotTile t) {
  if constexpr (kWidth == 16) {
    for (int i = 0; i < kRowPanels; ++i) conv_dots_pixels<Unit, 16 / kRowPanels, kRowPanels>(t);
  } else if constexpr (kRowPanels == 2) {
    conv_dots_panel<Unit, 1>(t);
    t.w[0] = t.w[1];
    if (t.from) t.from += kConvDotPanel;
    t.to += kConvDotPanel;
    conv_dots_panel<Unit, 1>(t);
  } else if constexpr (kWidth == 8) {
    conv_dots_pixels<Unit, 6, 1>(t);
    conv_dots_pixels<Unit, 5, 1>(t);
    conv_dots_pixels<Unit, 5, 1>(t);
  } else {
    for (int i = 0; i < 8; ++i) conv_dots_pixels<Unit, 2, 1>(t);
  }
}

}  // namespace
}  // namespace redline::REDLINE_ISA_NS
