// Depthwise convolutions: each channel with a filter of its own. Vectors are channels. A few neighbouring outputs of
// the last axis share the loads of a weight, and with three adjacent taps also those of the input.
#pragma once

#include "kernels/cpu/convolution/conv_positions.h"
#include "kernels/cpu/simd_row_panel.h"

namespace redline::REDLINE_ISA_NS {
namespace {

// Outputs that are summed at a time: their sums, a weight and the input stay in registers.
constexpr int kDepthwisePixels = 8;

template <class Weight>
class DepthwiseRun {
 public:
  explicit DepthwiseRun(const ConvDepthwise& a)
      : a_(a), in_(a.input), at_(a.input), width_(in_.axes[2].taps), weight_(static_cast<const Weight*>(a.weight)),
        lines_(static_cast<const float**>(a.scratch)), num_lines_(in_.axes[0].taps * in_.axes[1].taps) {}

  void run() {
    const int64_t width = in_.axes[2].out, height = in_.axes[1].out;
    for (int64_t r = a_.row_begin, end; r < a_.row_end; r = end) {
      const int64_t q2 = r % width, q1 = r / width % height, q0 = r / width / height;
      end = min_i64(a_.row_end, r - q2 + width);
      find_lines(q0, q1);
      const int64_t y_at = q0 * a_.y_strides[0] + q1 * a_.y_strides[1];
      run_line(y_at, q2, q2 + end - r);
    }
  }

 private:
  void find_lines(int64_t q0, int64_t q1) {
    const float** line = lines_;
    for (int64_t j0 = 0; j0 < in_.axes[0].taps; ++j0) {
      const int64_t i0 = at_.index(0, q0, j0);
      for (int64_t j1 = 0; j1 < in_.axes[1].taps; ++j1) *line++ = at_.line(i0, at_.index(1, q1, j1));
    }
  }
  void run_line(int64_t y_at, int64_t begin, int64_t end) {
    const bool is_three = width_ == 3 && in_.axes[2].step == 1 && in_.axes[2].tap_step == 1;
    for (int64_t q = begin; q < end;) {
      int64_t inside = 0;
      while (inside < kDepthwisePixels && q + inside < end && at_.is_inside(q + inside)) ++inside;
      if (inside == kDepthwisePixels) {
        is_three ? many<true>(y_at, q) : many<false>(y_at, q);
        q += kDepthwisePixels;
        continue;
      }
      for (int64_t last = q + max_i64(inside, 1); q < last; ++q) one(y_at, q);
    }
  }
  template <class Lanes>
  REDLINE_INLINE void finish(int64_t y_at, int64_t q, int64_t c, VecF32 sum, Lanes lanes) const {
    const int64_t at = y_at + q * a_.y_strides[2] + c;
    if (a_.bias != nullptr) sum = sum + load(a_.bias + c, lanes);
    if (a_.residual != nullptr) sum = sum + load(a_.residual + at, lanes);
    store(a_.y + at, sum, lanes);
  }
  /// Computes one output, some of whose taps may lie outside of the input.
  void one(int64_t y_at, int64_t q) const {
    for_lanes(a_.c_end - a_.c_begin, [&](int64_t i, auto lanes) REDLINE_LAMBDA {
      const int64_t c = a_.c_begin + i;
      const Weight* w = weight_ + c;
      VecF32 sum = zero_f32();
      for (int64_t line = 0; line < num_lines_; ++line)
        for (int64_t j = 0; j < width_; ++j, w += in_.channels) {
          const float* x = at_.pixel(lines_[line], at_.index(2, q, j));
          if (x != nullptr) sum = fma(load(x + c, lanes), load(w, lanes), sum);
        }
      finish(y_at, q, c, sum, lanes);
    });
  }
  /// Computes kDepthwisePixels outputs from q on, whose taps all lie inside of the input.
  template <bool kIsThree>
  void many(int64_t y_at, int64_t q) const {
    const ConvAxisArgs& axis = in_.axes[2];
    const int64_t stride = in_.pixel_stride, from = (q * axis.step + axis.first) * stride, step = axis.step * stride,
                  tap_step = axis.tap_step * stride;
    for_lanes(a_.c_end - a_.c_begin, [&](int64_t i, auto lanes) REDLINE_LAMBDA {
      const int64_t c = a_.c_begin + i;
      const Weight* w = weight_ + c;
      VecF32 sum[kDepthwisePixels];
      unroll<kDepthwisePixels>([&](auto p) REDLINE_LAMBDA { sum[p] = zero_f32(); });
      for (int64_t line = 0; line < num_lines_; ++line, w += width_ * in_.channels) {
        if (lines_[line] == nullptr) continue;
        const float* x = lines_[line] + from + c;
        if constexpr (kIsThree) {
          const VecF32 w0 = load(w, lanes), w1 = load(w + in_.channels, lanes), w2 = load(w + 2 * in_.channels, lanes);
          VecF32 x0 = load(x, lanes), x1 = load(x + stride, lanes);
          unroll<kDepthwisePixels>([&](auto p) REDLINE_LAMBDA {
            const VecF32 x2 = load(x + (p + 2) * stride, lanes);
            sum[p] = fma(x2, w2, fma(x1, w1, fma(x0, w0, sum[p])));
            x0 = x1;
            x1 = x2;
          });
        } else {
          const Weight* tap = w;
          for (int64_t j = 0; j < width_; ++j, tap += in_.channels, x += tap_step) {
            const VecF32 weight = load(tap, lanes);
            unroll<kDepthwisePixels>([&](auto p)
                                         REDLINE_LAMBDA { sum[p] = fma(load(x + p * step, lanes), weight, sum[p]); });
          }
        }
      }
      unroll<kDepthwisePixels>([&](auto p) REDLINE_LAMBDA { finish(y_at, q + p, c, sum[p], lanes); });
    });
  }

  const ConvDepthwise& a_;
  const ConvInput& in_;
  const ConvPositions at_;
  const int64_t width_;  // taps of the last axis
  const Weight* weight_;
  const float** lines_;  // [num_lines_] the input's lines that the taps of the outer axes read; nullptr: zeros
  const int64_t num_lines_;
};

void conv_depthwise(const ConvDepthwise& a) {
  if (a.weight_type == DType::kBF16) DepthwiseRun<BF16>(a).run();
  else if (a.weight_type == DType::kF16) DepthwiseRun<F16>(a).run();
  else DepthwiseRun<float>(a).run();
}

}  // namespace
}  // namespace redline::REDLINE_ISA_NS
