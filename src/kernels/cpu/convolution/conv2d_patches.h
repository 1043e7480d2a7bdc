// im2col into the activation layouts that linear kernels read. Where channels are a multiple of 32, a patch is one run
// of 32 floats per channel block and tap. Otherwise it is a few longer runs: with stride 1, the channels of all taps in
// one row of the kernel are contiguous.
#pragma once

#include "kernels/cpu/convolution/conv2d.h"

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace redline::REDLINE_ISA_NS {
namespace {

/// A writer of one row of kF32.
struct PlainRow {
  float* out;

  PlainRow(const ConvPatchesArgs& a, int64_t row, int64_t cols) : out(static_cast<float*>(a.out) + row * cols) {}
  REDLINE_INLINE void copy(const float* from, int64_t count) {
    for_lanes(count, [&](int64_t i, auto lanes) { store(out + i, load(from + i, lanes), lanes); });
    out += count;
  }
  REDLINE_INLINE void zeros(int64_t count) {
    for_lanes(count, [&](int64_t i, auto lanes) { store(out + i, zero_f32(), lanes); });
    out += count;
  }
  REDLINE_INLINE void end() {}
};

/// A writer of one row of kBf16Tiled. Runs need not be multiples of 32 elements: the remainder is kept until it fills a
/// tile row.
struct TileRow {
  static constexpr int64_t kLine = kXTileBytes / 2, kTile = kXTileRows * kLine;
  BF16* out;
  float waiting[kLine];
  int64_t fill = 0;

  TileRow(const ConvPatchesArgs& a, int64_t row, int64_t cols)
      : out(static_cast<BF16*>(a.out) + row / kXTileRows * (tiles_panel_bytes(cols) / 2) + row % kXTileRows * kLine) {}
  REDLINE_INLINE void image_row(const float* from) {
#pragma GCC unroll 8
    for (int i = 0; i < kLine / kWidth; ++i) store(out + i * kWidth, load(from + i * kWidth, Full{}), Full{});
    out += kTile;
  }
  REDLINE_INLINE void zero_line() {
#pragma GCC unroll 8
    for (int i = 0; i < kLine / kWidth; ++i) store(out + i * kWidth, zero_f32(), Full{});
    out += kTile;
  }
  template <class Value>
  REDLINE_INLINE int64_t wait(int64_t count, Value&& value) {
    const int64_t taken = min_i64(count, kLine - fill);
    for (int64_t i = 0; i < taken; ++i) waiting[fill + i] = value(i);
    fill += taken;
    if (fill == kLine) {
      image_row(waiting);
      fill = 0;
    }
    return taken;
  }
  REDLINE_INLINE void copy(const float* from, int64_t count) {
    int64_t i = fill > 0 ? wait(count, [&](int64_t at) { return from[at]; }) : 0;
    for (; i + kLine <= count; i += kLine) image_row(from + i);
    if (i < count) wait(count - i, [&](int64_t at) { return from[i + at]; });
  }
  REDLINE_INLINE void zeros(int64_t count) {
    int64_t i = fill > 0 ? wait(count, [](int64_t) { return 0.0f; }) : 0;
    for (; i + kLine <= count; i += kLine) zero_line();
    if (i < count) wait(count - i, [](int64_t) { return 0.0f; });
  }
  REDLINE_INLINE void end() {
    if (fill > 0) wait(kLine - fill, [](int64_t) { return 0.0f; });
  }
};

template <class Row>
void conv_patches_as(const ConvPatchesArgs& a) {
  const int64_t channels = a.channels, cols = a.kernel * a.kernel * channels;
  // Size of the feature map that patches are taken from, after upsampling.
  const bool is_empty = a.in_height == 0 || a.in_width == 0;
  const int64_t height = is_empty ? 0 : a.upsample ? a.out_height : a.in_height;
  const int64_t width = a.upsample ? a.out_width : a.in_width;
  if (a.row_begin >= a.row_end) return;  // out_width may be 0
  const bool in_blocks = channels % kConvBlock == 0;
  int64_t oy = a.row_begin / a.out_width, ox = a.row_begin % a.out_width;
  for (int64_t r = a.row_begin; r < a.row_end; ++r) {
    Row row(a, a.out_row + r - a.row_begin, cols);
    const int64_t x0 = ox * a.stride - a.pad;
    // Taps [first, last) of a kernel row are inside the feature map.
    const int64_t first = min_i64(max_i64(-x0, 0), a.kernel);
    const int64_t last = max_i64(first, min_i64(a.kernel, width - x0));
    for (int64_t block = 0; in_blocks && block < channels; block += kConvBlock)
      for (int64_t dy = 0; dy < a.kernel; ++dy) {
        int64_t y = oy * a.stride + dy - a.pad;
        const bool inside = y >= 0 && y < height;
        if (inside && a.upsample) y = y * a.in_height / a.out_height;
        for (int64_t dx = 0; dx < a.kernel; ++dx) {
          int64_t x = x0 + dx;
          if (!inside || dx < first || dx >= last) {
            row.zeros(kConvBlock);
            continue;
          }
          if (a.upsample) x = x * a.in_width / a.out_width;
          row.copy(a.x + (y * a.in_width + x) * channels + block, kConvBlock);
        }
      }
    for (int64_t dy = 0; !in_blocks && dy < a.kernel; ++dy) {
      const int64_t y = oy * a.stride + dy - a.pad;
      if (y < 0 || y >= height) {
        row.zeros(a.kernel * channels);
        continue;
      }
      if (first > 0) row.zeros(first * channels);
      if (a.upsample) {
        const float* image_row = a.x + y * a.in_height / a.out_height * a.in_width * channels;
        for (int64_t dx = first; dx < last; ++dx)
          row.copy(image_row + (x0 + dx) * a.in_width / a.out_width * channels, channels);
      } else if (last > first) {
        row.copy(a.x + (y * a.in_width + x0 + first) * channels, (last - first) * channels);
      }
      if (last < a.kernel) row.zeros((a.kernel - last) * channels);
    }
    row.end();
    if (++ox == a.out_width) {
      ox = 0;
      ++oy;
    }
  }
}

}  // namespace
}  // namespace redline::REDLINE_ISA_NS
