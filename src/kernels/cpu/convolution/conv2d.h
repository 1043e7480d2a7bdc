// Convolutions: im2col patches as the rows of a matrix product, or the whole convolution by bfloat16 tiles or dots, or
// in float32.
#pragma once

#include <cstdint>

#include "tensor/activation_layout.h"
#include "tensor/dtype.h"
#include "tensor/row_panel.h"

namespace redline {

struct ConvTiles;
struct ConvGather;     // convolution.h
struct ConvDepthwise;  // convolution.h

/// Arguments of im2col: out[r, column(dy, dx, c)] = x[stride oy + dy - pad, stride ox + dx - pad, c], zero outside the
/// feature map, for the output pixels r = oy * out_width + ox in [row_begin, row_end) of one item. With t = dy * kernel
/// + dx, column(t, c) is
///   ((c / 32) * kernel * kernel + t) * 32 + c % 32   where channels are a multiple of 32
///   t * channels + c                                 otherwise
/// With `upsample` (stride 1) x is first resized to out_height x out_width by nearest neighbour: pixel (y, x) is input
/// pixel (y * in_height / out_height, x * in_width / out_width), rounded down.
struct ConvPatchesArgs {
  const float* x;  ///< [in_height, in_width, channels] dense
  int64_t in_height, in_width, channels;
  int64_t out_height, out_width;
  int64_t kernel, stride, pad;
  bool upsample;
  int64_t row_begin, row_end;
  ActivationLayout form;  ///< kF32 or kBf16Tiled
  int64_t out_row;        ///< row of `out` that row_begin is written to
  void* out;              ///< kernel * kernel * channels per row; zeros pad the last tile of kBf16Tiled
  /// If set, the whole convolution is computed, without patches, and the fields above from row_begin on are not read.
  /// (It is not a table entry of its own, so that a table has either both or none.) conv_f32 does nothing else.
  const ConvTiles* tiles = nullptr;
  /// If set, conv_patches makes patches of a convolution of any number of axes.
  const ConvGather* gather = nullptr;
  /// If set, conv_f32 computes a depthwise convolution, and no other member is read.
  const ConvDepthwise* depthwise = nullptr;
};

/// y[oy, ox, n] = sum_{dy, dx, c} w[n, c, dy, dx] f(x[stride oy + dy - pad, stride ox + dx - pad, c]) (+ bias[n])
///                (+ residual[oy, ox, n])
/// for output rows [image_row_begin, image_row_end) of one item and n in [n_begin, n_end), or for all rows of a few
/// small items, which then share one read of the weight. x is zero outside the feature map, and
///   f(v) = v, or v * scale[c] + shift[c] if there is a scale, then with `silu` v / (1 + e^-v).
/// conv_patches rounds f(x) to bfloat16 and takes bfloat16 weights: tile products on the tile unit, dot products where
/// vdpbf16ps is there, a portable emulation in other tables. conv_f32 rounds nothing and takes any plain type.
/// Channels are a multiple of 32, kernel is at most kConvMaxKernel. Each sum has one fixed order, whatever rows and
/// columns a call has.
struct ConvTiles {
  const float* scale;  ///< [items, channels], with shift; or nullptr
  const float* shift;
  bool silu;
  const void* weight;                    ///< packed
  int64_t out_channels, n_begin, n_end;  ///< n_begin is a multiple of 16
  int64_t image_row_begin, image_row_end;
  const float* bias;                 ///< [out_channels] or nullptr
  int64_t bias_stride;               ///< elements to the bias of the next item
  const float* residual;             ///< layout of y, may be y; or nullptr
  float* y;                          ///< [items, out_height, out_width, out_channels]
  bool streams;                      ///< y exceeds the caches: use non-temporal stores
  void* buffer;                      ///< conv_buffer_bytes, aligned to 64 bytes
  void* scratch;                     ///< kScratchBytes
  DType weight_type = DType::kBF16;  ///< or kF16 or kF32, for conv_f32
  /// Number of items, at most conv_items_at_once; they are contiguous in x and y. With several items all of their rows
  /// are computed.
  int64_t items = 1;
};
inline constexpr int64_t kConvMaxKernel = 7;

/// The output pixels computed in one pass over the weight: items x rows x width. Their input is buffered as bfloat16,
/// or as float32 for conv_f32, in [channels / 32][items][input rows][pitch][32].
struct ConvRegion {
  int64_t width, image_rows;
  int64_t plane_bytes, bytes;
};
inline constexpr int64_t kConvRegionPixels = 512, kConvRegionRows = 64;
/// Input bytes of a region. L2, less the part for streamed data, holds two regions; or one with many channels, whose
/// weights are so large that reading them less often matters more.
inline constexpr int64_t kConvRegionBytes = 13 << 16, kConvWideRegionBytes = 27 << 16, kConvWideChannels = 1024;
[[gnu::always_inline]] inline constexpr int64_t conv_region_limit(int64_t channels) {
  return channels > kConvWideChannels ? kConvWideRegionBytes : kConvRegionBytes;
}

[[gnu::always_inline]] inline constexpr int64_t conv_extent(int64_t out, int64_t kernel, int64_t stride) {
  return (out - 1) * stride + kernel;
}
[[gnu::always_inline]] inline constexpr ConvRegion conv_region_of(int64_t width, int64_t image_rows, int64_t channels,
                                                                  int64_t kernel, int64_t stride, int64_t items = 1,
                                                                  int64_t element_bytes = 2) {
  const int64_t pixels = items * conv_extent(width, kernel, stride) * conv_extent(image_rows, kernel, stride);
  // An odd number of cache lines, so that planes start in different cache sets. Tiles may read past the last pixel.
  const int64_t pixel_bytes = kConvBlock * element_bytes;
  const int64_t plane = (pixels | 1) * pixel_bytes, past = (16 + kernel) * stride * pixel_bytes;
  return {width, image_rows, plane, channels / kConvBlock * plane + past};
}
/// Returns the region. It depends only on these arguments, so that the partition, and with it the result, does not
/// depend on the workers.
[[gnu::always_inline]] inline constexpr ConvRegion conv_region(int64_t out_width, int64_t channels, int64_t kernel,
                                                               int64_t stride, int64_t element_bytes = 2) {
  int64_t width = out_width <= 96 ? out_width : 64;
  int64_t image_rows = kConvRegionPixels / width;
  if (image_rows > kConvRegionRows) image_rows = kConvRegionRows;
  ConvRegion region = conv_region_of(width, image_rows, channels, kernel, stride, 1, element_bytes);
  while (region.bytes > conv_region_limit(channels) && (image_rows > 1 || width > 16)) {
    if (image_rows > 1) image_rows -= (image_rows + 7) / 8;
    else width = (width / 2 + 15) / 16 * 16;
    region = conv_region_of(width, image_rows, channels, kernel, stride, 1, element_bytes);
  }
  return region;
}
/// Maximum number of items with so few pixels that they share one pass over the weight. The weight is read from memory,
/// and one item alone would use it for few pixels.
inline constexpr int64_t kConvMaxItems = 8;
[[gnu::always_inline]] inline constexpr int64_t conv_items_at_once(int64_t out_width, int64_t out_height,
                                                                   int64_t channels, int64_t kernel, int64_t stride,
                                                                   int64_t element_bytes = 2) {
  const ConvRegion one = conv_region(out_width > 1 ? out_width : 1, channels, kernel, stride, element_bytes);
  if (one.width < out_width || one.image_rows < out_height) return 1;
  int64_t items = 1;
  const int64_t max_panels = 2 * kConvRegionRows, panels = (out_width + 15) / 16 * out_height;
  while (items < kConvMaxItems && (items + 1) * out_width * out_height <= kConvRegionPixels &&
         (items + 1) * panels <= max_panels &&
         conv_region_of(out_width, out_height, channels, kernel, stride, items + 1, element_bytes).bytes <=
             conv_region_limit(channels))
    ++items;
  return items;
}
/// Returns the buffer size for two regions of any width.
[[gnu::always_inline]] inline constexpr int64_t conv_buffer_bytes(int64_t channels, int64_t kernel, int64_t stride,
                                                                  int64_t element_bytes = 2) {
  const int64_t least = conv_region_of(16, 1, channels, kernel, stride, 1, element_bytes).bytes;
  return 2 * ((least > conv_region_limit(channels) ? least : conv_region_limit(channels)) + 64);
}

}  // namespace redline
