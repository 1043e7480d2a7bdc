// Patches of convolutions of any number of axes, in the activation layouts that linear kernels read.
#pragma once

#include "kernels/cpu/convolution/conv2d_patches.h"
#include "kernels/cpu/convolution/conv_positions.h"

namespace redline::REDLINE_ISA_NS {
namespace {

/// Lists the pixels of a patch, one for each tap; nullptr: zeros.
REDLINE_INLINE void list_taps(const ConvInput& in, const ConvPositions& at, int64_t q0, int64_t q1, int64_t q2,
                              const float** pixels) {
  for (int64_t j0 = 0; j0 < in.axes[0].taps; ++j0) {
    const int64_t i0 = at.index(0, q0, j0);
    for (int64_t j1 = 0; j1 < in.axes[1].taps; ++j1) {
      const float* line = at.line(i0, at.index(1, q1, j1));
      for (int64_t j2 = 0; j2 < in.axes[2].taps; ++j2) *pixels++ = at.pixel(line, at.index(2, q2, j2));
    }
  }
}

/// Writes [taps][channels]: one run for the last axis where its taps are neighbours and their pixels have no channels
/// between.
template <class Row>
REDLINE_INLINE void gather_taps(const ConvInput& in, const ConvPositions& at, int64_t q0, int64_t q1, int64_t q2,
                                Row& row) {
  const ConvAxisArgs& last = in.axes[2];
  const bool is_run = last.tap_step == 1 && in.channels == in.pixel_stride && at.is_inside(q2);
  for (int64_t j0 = 0; j0 < in.axes[0].taps; ++j0) {
    const int64_t i0 = at.index(0, q0, j0);
    for (int64_t j1 = 0; j1 < in.axes[1].taps; ++j1) {
      const float* line = at.line(i0, at.index(1, q1, j1));
      if (line != nullptr && is_run) {
        row.copy(line + (q2 * last.step + last.first) * in.pixel_stride, last.taps * in.channels);
        continue;
      }
      for (int64_t j2 = 0; j2 < last.taps; ++j2) {
        if (const float* pixel = at.pixel(line, at.index(2, q2, j2))) row.copy(pixel, in.channels);
        else row.zeros(in.channels);
      }
    }
  }
}

template <class Row>
void conv_gather_as(const ConvPatchesArgs& a) {
  const ConvGather& g = *a.gather;
  const ConvInput& in = g.input;
  const ConvPositions at(in);
  const int64_t channels = in.channels, taps = in.axes[0].taps * in.axes[1].taps * in.axes[2].taps,
                cols = taps * channels, lines = in.axes[1].out, width = in.axes[2].out;
  auto** pixels = static_cast<const float**>(g.scratch);
  if (a.row_begin >= a.row_end) return;  // sizes may be 0
  int64_t q2 = a.row_begin % width, q1 = a.row_begin / width % lines, q0 = a.row_begin / width / lines;
  for (int64_t r = a.row_begin; r < a.row_end; ++r) {
    Row row(a, a.out_row + r - a.row_begin, cols);
    if (channels % kConvBlock == 0) {
      list_taps(in, at, q0, q1, q2, pixels);
      for (int64_t block = 0; block < channels; block += kConvBlock)
        for (int64_t tap = 0; tap < taps; ++tap) {
          if (pixels[tap] != nullptr) row.copy(pixels[tap] + block, kConvBlock);
          else row.zeros(kConvBlock);
        }
    } else {
      gather_taps(in, at, q0, q1, q2, row);
    }
    row.end();
    if (++q2 < width) continue;
    q2 = 0;
    if (++q1 < lines) continue;
    q1 = 0;
    ++q0;
  }
}

/// Writes float32 rows in the order of checkpoints, [channels][taps].
void conv_gather_channels(const ConvPatchesArgs& a) {
  const ConvGather& g = *a.gather;
  const ConvInput& in = g.input;
  const ConvPositions at(in);
  const int64_t taps = in.axes[0].taps * in.axes[1].taps * in.axes[2].taps;
  const int64_t lines = in.axes[1].out, width = in.axes[2].out;
  auto** pixels = static_cast<const float**>(g.scratch);
  for (int64_t r = a.row_begin; r < a.row_end; ++r) {
    list_taps(in, at, r / width / lines, r / width % lines, r % width, pixels);
    float* out = static_cast<float*>(a.out) + (a.out_row + r - a.row_begin) * taps * in.channels;
    for (int64_t tap = 0; tap < taps; ++tap)
      for (int64_t c = 0; c < in.channels; ++c) out[c * taps + tap] = pixels[tap] != nullptr ? pixels[tap][c] : 0.0f;
  }
}

void conv_gather(const ConvPatchesArgs& a) {
  if (a.gather->order == ConvPatchOrder::kChannels) conv_gather_channels(a);
  else if (a.form == ActivationLayout::kBf16Tiled) conv_gather_as<TileRow>(a);
  else conv_gather_as<PlainRow>(a);
}

}  // namespace
}  // namespace redline::REDLINE_ISA_NS
