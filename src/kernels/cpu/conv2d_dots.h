// The products of conv2d_tiles.h by vdpbf16ps, for cores without a tile unit: sums are registers, and both operands are
// read where they lie.
//
// Pairs of channels are summed in the order of the weight: the order of linear_bf16_dot over im2col patches.
#pragma once

#include "kernels/cpu/conv2d.h"
#include "kernels/cpu/simd_row_panel.h"

namespace redline::REDLINE_ISA_NS {
namespace {

/// The unit of ConvTilesRun that has no tiles.
struct ConvDots {};
template <class Unit>
inline constexpr bool kIsConvDots = false;
template <>
inline constexpr bool kIsConvDots<ConvDots> = true;

// Steps of K, of 32 channels of a tap, between spills of the sums: two row panels of the weight stay in L1.
constexpr int64_t kConvDotSteps = 12;

/// Pixels of one pixel panel by one or two row panels.
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

// Between row panels in `from` and `to`.
constexpr int64_t kConvDotPanel = 16 * kRowPanelRows;

template <int kPixels, int kRowPanels, bool kIsDense>
[[gnu::noinline]] void conv_dots(const ConvDotTile& t) {
  const int64_t pixel_bytes = kIsDense ? 2 * kConvBlock : t.pixel_bytes;
  VecF32 sum[kPixels][kRowPanels];
  unroll<kPixels>([&](auto r) REDLINE_LAMBDA {
    unroll<kRowPanels>([&](auto s) REDLINE_LAMBDA {
      sum[r][s] = t.from ? load(t.from + s * kConvDotPanel + r * kRowPanelRows, Full{}) : zero_f32();
    });
  });
  const uint8_t *plane = t.x, *w0 = t.w[0], *w1 = t.w[1];
  for (int64_t block = t.blocks; block > 0; --block, plane += t.plane_bytes)
    for (int64_t tap = 0; tap < t.taps; ++tap) {
      const uint8_t* x = plane + t.tap_at[tap];
      for (int pair = 0; pair < kConvBlock / 2; ++pair, x += 4, w0 += 64, w1 += 64) {
        VecI32 w[2] = {load_i32(w0)};
        if (kRowPanels == 2) w[1] = load_i32(w1);
        unroll<kPixels>([&](auto r) REDLINE_LAMBDA {
          int32_t both;
          __builtin_memcpy(&both, x + r * pixel_bytes, 4);
          unroll<kRowPanels>([&](auto s) REDLINE_LAMBDA { sum[r][s] = dot2_bf16(sum[r][s], w[s], set1_i32(both)); });
        });
      }
    }
  unroll<kPixels>([&](auto r) REDLINE_LAMBDA {
    unroll<kRowPanels>([&](auto s)
                           REDLINE_LAMBDA { store(t.to + s * kConvDotPanel + r * kRowPanelRows, sum[r][s], Full{}); });
  });
}

/// All 16 pixels: two row panels as 16 sums that share a broadcast, or one.
template <int kRowPanels>
void conv_dots_panel(ConvDotTile t) {
  constexpr int kPixels = 16 / kRowPanels;
  for (int pixel = 0; pixel < 16; pixel += kPixels) {
    if (t.pixel_bytes == 2 * kConvBlock) conv_dots<kPixels, kRowPanels, true>(t);
    else conv_dots<kPixels, kRowPanels, false>(t);
    t.x += kPixels * t.pixel_bytes;
    if (t.from) t.from += kPixels * kRowPanelRows;
    t.to += kPixels * kRowPanelRows;
  }
}

}  // namespace
}  // namespace redline::REDLINE_ISA_NS
