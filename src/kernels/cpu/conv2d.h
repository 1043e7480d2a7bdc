// Convolutions: patches of a picture as the rows of a product, or, by bfloat16 tiles, the whole.
#pragma once

#include <cstdint>

#include "tensor/activation_layout.h"

namespace redline {

/// Channels that lie side by side in a patch, and in the weight (tensor/packed_weight.h).
inline constexpr int64_t kConvBlock = 32;

struct ConvTiles;

/// out[r, column(dy, dx, c)] = x[stride oy + dy - pad, stride ox + dx - pad, c], zero outside the picture, for the
/// output pixels r = oy * out_width + ox in [row_begin, row_end) of one item. With t = dy * kernel + dx, column(t, c)
/// is
///   ((c / 32) * kernel * kernel + t) * 32 + c % 32   where channels are a multiple of 32
///   t * channels + c                                 otherwise
/// With `upsample` (stride 1) the picture is first brought to out_height x out_width: pixel (y, x) of that is pixel
/// (y * in_height / out_height, x * in_width / out_width), rounded down.
struct ConvPatchesArgs {
  const float* x;  ///< [in_height, in_width, channels] dense
  int64_t in_height, in_width, channels;
  int64_t out_height, out_width;
  int64_t kernel, stride, pad;
  bool upsample;
  int64_t row_begin, row_end;
  ActivationLayout form;  ///< kF32 or kBf16Tiled
  int64_t out_row;        ///< which row of `out` row_begin is
  void* out;  ///< rows of kernel * kernel * channels in the form; the last tile of kBf16Tiled is padded with zeros
  /// Not patches but the whole convolution; what stands above from row_begin on is not read then. (Here and not an
  /// entry of its own, so that a table which has one has the other.)
  const ConvTiles* tiles = nullptr;
};

/// y[oy, ox, n] = sum_{dy, dx, c} w[n, c, dy, dx] f(x[stride oy + dy - pad, stride ox + dx - pad, c]) (+ bias[n])
///                (+ residual[oy, ox, n])
/// for output lines [line_begin, line_end) of one item and n in [n_begin, n_end), or for all lines of a few small
/// items, which then read the weight once; zero outside the picture, with
///   f(v) = v, or v * scale[c] + shift[c] where there is a scale, then with `silu` v / (1 + e^-v), rounded to bfloat16.
/// By tile products on the tile unit, by the plain stand-in in other tables. Channels are a multiple of 32, kernel at
/// most kConvMostKernel. Each sum has one fixed order, whatever lines and columns a call has.
struct ConvTiles {
  const float* scale;  ///< [items, channels] with shift, or nullptr
  const float* shift;
  bool silu;
  const void* weight;                    ///< bfloat16, packed
  int64_t out_channels, n_begin, n_end;  ///< n_begin is a multiple of 16
  int64_t line_begin, line_end;
  const float* bias;      ///< [out_channels] or nullptr
  int64_t bias_stride;    ///< to that of the next item
  const float* residual;  ///< as y, may be y; or nullptr
  float* y;               ///< [items, out_height, out_width, out_channels]
  bool streams;           ///< y is too large for the caches
  void* buffer;           ///< conv_buffer_bytes, aligned to cache lines
  void* scratch;          ///< kScratchBytes
  int64_t items = 1;  ///< one after the other in x too, at most conv_items_at_once; all lines of them if more than one
};
inline constexpr int64_t kConvMostKernel = 7;

/// Output pixels that one pass over the weight serves: items x lines x width. Their input lies in a buffer as bfloat16,
/// [channels / 32][items][in_lines][pitch][32].
struct ConvRegion {
  int64_t width, lines;
  int64_t plane_bytes, bytes;
};
inline constexpr int64_t kConvRegionPixels = 512, kConvRegionLines = 64;
/// The second-level cache, less what streams through it, holds two of them, or one of many channels, whose weights are
/// so large that reading them seldom counts for more.
inline constexpr int64_t kConvRegionBytes = 13 << 16, kConvWideRegionBytes = 27 << 16, kConvWideChannels = 1024;
[[gnu::always_inline]] inline constexpr int64_t conv_region_limit(int64_t channels) {
  return channels > kConvWideChannels ? kConvWideRegionBytes : kConvRegionBytes;
}

[[gnu::always_inline]] inline constexpr int64_t conv_extent(int64_t out, int64_t kernel, int64_t stride) {
  return (out - 1) * stride + kernel;
}
[[gnu::always_inline]] inline constexpr ConvRegion conv_region_of(int64_t width, int64_t lines, int64_t channels,
                                                                  int64_t kernel, int64_t stride, int64_t items = 1) {
  const int64_t pixels = items * conv_extent(width, kernel, stride) * conv_extent(lines, kernel, stride);
  // An odd number of cache lines, so that planes do not meet in one set. Tiles may reach past the last pixel.
  const int64_t plane = (pixels | 1) * 2 * kConvBlock, past = (16 + kernel) * stride * 2 * kConvBlock;
  return {width, lines, plane, channels / kConvBlock * plane + past};
}
/// Depends on nothing but these: results are cut alike however lines are shared.
[[gnu::always_inline]] inline constexpr ConvRegion conv_region(int64_t out_width, int64_t channels, int64_t kernel,
                                                               int64_t stride) {
  int64_t width = out_width <= 96 ? out_width : 64;
  int64_t lines = kConvRegionPixels / width;
  if (lines > kConvRegionLines) lines = kConvRegionLines;
  ConvRegion region = conv_region_of(width, lines, channels, kernel, stride);
  while (region.bytes > conv_region_limit(channels) && (lines > 1 || width > 16)) {
    if (lines > 1) lines -= (lines + 7) / 8;
    else width = (width / 2 + 15) / 16 * 16;
    region = conv_region_of(width, lines, channels, kernel, stride);
  }
  return region;
}
/// How many items of so few pixels one pass over the weight serves: it is read from memory, and by few pixels each
/// time.
inline constexpr int64_t kConvMostItems = 8;
[[gnu::always_inline]] inline constexpr int64_t conv_items_at_once(int64_t out_width, int64_t out_height,
                                                                   int64_t channels, int64_t kernel, int64_t stride) {
  const ConvRegion one = conv_region(out_width > 1 ? out_width : 1, channels, kernel, stride);
  if (one.width < out_width || one.lines < out_height) return 1;
  int64_t items = 1;
  const int64_t most_panels = 2 * kConvRegionLines, panels = (out_width + 15) / 16 * out_height;
  while (items < kConvMostItems && (items + 1) * out_width * out_height <= kConvRegionPixels &&
         (items + 1) * panels <= most_panels &&
         conv_region_of(out_width, out_height, channels, kernel, stride, items + 1).bytes <=
             conv_region_limit(channels))
    ++items;
  return items;
}
/// The most that two regions of any width take.
[[gnu::always_inline]] inline constexpr int64_t conv_buffer_bytes(int64_t channels, int64_t kernel, int64_t stride) {
  const int64_t least = conv_region_of(16, 1, channels, kernel, stride).bytes;
  return 2 * ((least > conv_region_limit(channels) ? least : conv_region_limit(channels)) + kConvBlock * 2);
}

}  // namespace redline
