// Positions of the input that a convolution reads (kernels/cpu/convolution/convolution.h).
#pragma once

#include "kernels/cpu/convolution/convolution.h"

#include "kernels/cpu/simd.h"

namespace redline::REDLINE_ISA_NS {
namespace {

/// Finds pixels of an item. An index is that of a row of the input, -1 for zeros, or -2 - i for position i of the
/// leading ones.
class ConvPositions {
 public:
  explicit ConvPositions(const ConvInput& input) : in_(input) {}

  /// Returns the index that tap j of output q of an axis reads.
  REDLINE_INLINE int64_t index(int axis, int64_t q, int64_t j) const {
    const ConvAxisArgs& a = in_.axes[axis];
    const int64_t position = q * a.step + a.first + j * a.tap_step;
    if (position < 0 && in_.leading != nullptr && axis == in_.leading_axis && position >= -in_.num_leading)
      return -2 - (position + in_.num_leading);
    const int64_t found = padded_index(position, a.in > 0 ? a.size : 0, a.padding);
    return found < 0 || a.size == a.in ? found : found * a.in / a.size;
  }
  /// Returns the pixel (i0, i1, 0), or (i0, i1, i2).
  REDLINE_INLINE const float* line(int64_t i0, int64_t i1) const {
    if (i0 == -1 || i1 == -1) return nullptr;
    const float* base = in_.x;
    if (i0 < 0) {
      base = in_.leading;
      i0 = -2 - i0;
    } else if (i1 < 0) {
      base = in_.leading;
      i1 = -2 - i1;
    }
    return base + (i0 * in_.axes[1].in + i1) * in_.axes[2].in * in_.pixel_stride;
  }
  REDLINE_INLINE const float* pixel(const float* line, int64_t i2) const {
    if (line == nullptr || i2 == -1) return nullptr;
    return i2 >= 0 ? line + i2 * in_.pixel_stride : in_.leading + (-2 - i2) * in_.pixel_stride;
  }
  /// Returns true if all taps of output q of the last axis are inside of the input, at equal distances.
  REDLINE_INLINE bool is_inside(int64_t q) const {
    const ConvAxisArgs& a = in_.axes[2];
    const int64_t first = q * a.step + a.first, last = first + (a.taps - 1) * a.tap_step;
    return a.size == a.in && min_i64(first, last) >= 0 && max_i64(first, last) < a.in;
  }

 private:
  const ConvInput& in_;
};

}  // namespace
}  // namespace redline::REDLINE_ISA_NS
