// Patches of convolutions of any number of axes against plain loops: a copy, or a rounding to bfloat16, so nothing may
// differ; and depthwise convolutions of every instruction set against sums in float64.
#include "kernels/cpu/convolution/convolution.h"

#include <cstring>

#include "kernels/cpu/convolution/conv2d.h"

#include "support/guarded_buffer.h"
#include "support/isa_test.h"

namespace redline {
namespace {

using testing::GuardedBuffer;
using ConvolutionKernels = IsaTest;

/// Axes, and channels [first, first + channels) of `stride`. Positions before the input are those of a chunk before it
/// if num_leading > 0.
struct VolumeCase {
  ConvAxisArgs axes[3];
  int64_t channels, stride = 0, first_channel = 0;
  int num_leading = 0, leading_axis = 0;

  int64_t pixel_stride() const { return stride > 0 ? stride : channels; }
  int64_t in_pixels() const { return axes[0].in * axes[1].in * axes[2].in; }
  int64_t rows() const { return axes[0].out * axes[1].out * axes[2].out; }
  int64_t taps() const { return axes[0].taps * axes[1].taps * axes[2].taps; }
  int64_t leading_pixels() const {
    int64_t n = num_leading;
    for (int i = leading_axis + 1; i < 3; ++i) n *= axes[i].in;
    return n;
  }
};

/// The index that a position stands for, found by walking; -1: zero.
int64_t walked_index(int64_t position, int64_t size, ConvPadding padding) {
  if (size == 0) return -1;
  while (position < 0 || position >= size) {
    switch (padding) {
      case ConvPadding::kZeros: return -1;
      case ConvPadding::kReplicate: position += position < 0 ? 1 : -1; break;
      case ConvPadding::kReflect:
        position = size == 1 ? 0 : position < 0 ? -position : 2 * (size - 1) - position;
        break;
      case ConvPadding::kCircular: position += position < 0 ? size : -size; break;
    }
  }
  return position;
}

struct Volume {
  VolumeCase c;
  GuardedBuffer<float> x, leading;

  explicit Volume(const VolumeCase& of)
      : c(of), x(c.in_pixels() * c.pixel_stride()), leading(c.leading_pixels() * c.pixel_stride()) {
    const std::vector<float> values = test_values(static_cast<size_t>(x.size() + leading.size()), 3, 5.0f);
    for (int64_t i = 0; i < x.size(); ++i) x[i] = values[static_cast<size_t>(i)];
    for (int64_t i = 0; i < leading.size(); ++i) leading[i] = values[static_cast<size_t>(x.size() + i)];
  }
  ConvInput input() const {
    ConvInput in = {.x = x.data() + c.first_channel, .pixel_stride = c.pixel_stride(), .channels = c.channels};
    for (int i = 0; i < 3; ++i) in.axes[i] = c.axes[i];
    if (c.num_leading > 0) in.leading = leading.data() + c.first_channel;
    in.num_leading = c.num_leading;
    in.leading_axis = c.leading_axis;
    return in;
  }
  float at(int64_t row, int64_t tap, int64_t channel) const {
    const int64_t q[] = {row / (c.axes[1].out * c.axes[2].out), row / c.axes[2].out % c.axes[1].out,
                         row % c.axes[2].out};
    const int64_t j[] = {tap / (c.axes[1].taps * c.axes[2].taps), tap / c.axes[2].taps % c.axes[1].taps,
                         tap % c.axes[2].taps};
    int64_t pixel = 0;
    bool is_leading = false;
    for (int i = 0; i < 3; ++i) {
      const ConvAxisArgs& a = c.axes[i];
      const int64_t position = q[i] * a.step + a.first + j[i] * a.tap_step;
      int64_t index;
      if (c.num_leading > 0 && i == c.leading_axis && position < 0) {
        index = c.num_leading + position;
        is_leading = true;
      } else {
        index = walked_index(position, a.in == 0 ? 0 : a.size, a.padding);
        if (index < 0) return 0;
        index = index * a.in / a.size;
      }
      pixel = pixel * (i == 0 ? 0 : a.in) + index;
    }
    return (is_leading ? leading : x)[pixel * c.pixel_stride() + c.first_channel + channel];
  }
};

std::vector<uint8_t>& aligned_scratch() {
  static std::vector<uint8_t> bytes(static_cast<size_t>(kScratchBytes) + 64);
  return bytes;
}
void* scratch() {
  return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(aligned_scratch().data()) + 63) / 64 * 64);
}

void expect_volume_patches(const CpuKernels& kernels, const VolumeCase& c, int64_t begin, int64_t end,
                           int64_t out_row) {
  SCOPED_TRACE(fmt::format("{} channels, rows {} to {} at {}", c.channels, begin, end, out_row));
  const Volume volume(c);
  ConvGather gather = {.input = volume.input(), .scratch = scratch()};
  ConvPatchesArgs a = {};
  a.gather = &gather;
  a.row_begin = begin;
  a.row_end = end;
  a.out_row = out_row;
  const int64_t taps = c.taps(), cols = taps * c.channels, rows = out_row + end - begin;
  const auto patch = [&](int64_t row, int64_t col) {
    const int64_t block = c.channels % 32 == 0 ? 32 : c.channels;
    return volume.at(row, col / block % taps, col / block / taps * block + col % block);
  };
  GuardedBuffer<float> plain(rows * cols);
  for (const ConvPatchOrder order : {ConvPatchOrder::kTaps, ConvPatchOrder::kChannels}) {
    for (int64_t i = 0; i < plain.size(); ++i) plain[i] = 77;
    gather.order = order;
    a.form = ActivationLayout::kF32;
    a.out = plain.data();
    kernels.conv_patches(a);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t k = 0; k < cols; ++k) {
        const float want = r < out_row                      ? 77.0f
                           : order == ConvPatchOrder::kTaps ? patch(begin + r - out_row, k)
                                                            : volume.at(begin + r - out_row, k % taps, k / taps);
        ASSERT_EQ(plain[r * cols + k], want) << "row " << r << ", column " << k;
      }
  }
  const int64_t steps = (cols + 31) / 32, panel = tiles_panel_bytes(cols) / 2;
  GuardedBuffer<uint16_t> tiles(activation_layout_bytes(ActivationLayout::kBf16Tiled, rows, cols) / 2);
  for (int64_t i = 0; i < tiles.size(); ++i) tiles[i] = 0x7777;
  gather.order = ConvPatchOrder::kTaps;
  a.form = ActivationLayout::kBf16Tiled;
  a.out = tiles.data();
  kernels.conv_patches(a);
  for (int64_t r = 0; r < (rows + 15) / 16 * 16; ++r)
    for (int64_t k = 0; k < steps * 32; ++k) {
      const uint16_t got = tiles[r / 16 * panel + k / 32 * 512 + r % 16 * 32 + k % 32];
      if (r < out_row || r >= rows) ASSERT_EQ(got, 0x7777) << "row " << r << " is not this call's";
      else ASSERT_EQ(got, k < cols ? f32_to_bf16(patch(begin + r - out_row, k)) : 0) << "row " << r << ", column " << k;
    }
}

ConvAxisArgs plain_axis(int64_t in, int64_t out, int64_t taps, int64_t step = 1, int64_t first = 0,
                        int64_t tap_step = 1, ConvPadding padding = ConvPadding::kZeros) {
  return {.in = in,
          .out = out,
          .taps = taps,
          .step = step,
          .first = first,
          .tap_step = tap_step,
          .size = in,
          .padding = padding};
}

/// Kinds of axes: causal, strided, dilated, backwards as in a phase of a transposed convolution, resized, empty.
std::vector<VolumeCase> volume_cases(int64_t channels) {
  const ConvAxisArgs one = plain_axis(1, 1, 1);
  std::vector<VolumeCase> cases = {
      {{plain_axis(3, 3, 3, 1, -2), plain_axis(4, 4, 3, 1, -1), plain_axis(21, 21, 3, 1, -1)}, channels},
      {{one, one, plain_axis(23, 11, 5, 2, -2, 1)}, channels},
      {{one, one, plain_axis(20, 21, 3, 1, 1, -1)}, channels},
      {{one, plain_axis(5, 3, 2, 2, 0, 2), plain_axis(19, 9, 3, 2, -2, 2)}, channels, channels + 5, 3},
      {{one, plain_axis(0, 2, 3, 1, -1), plain_axis(3, 3, 3, 1, -1, 1, ConvPadding::kReplicate)}, channels},
  };
  for (const ConvPadding padding : {ConvPadding::kReplicate, ConvPadding::kReflect, ConvPadding::kCircular})
    cases.push_back({{plain_axis(2, 4, 3, 1, -2, 1, padding), plain_axis(1, 3, 3, 1, -2, 1, padding),
                      plain_axis(12, 18, 5, 1, -5, 1, padding)},
                     channels});
  VolumeCase resized = {{one, plain_axis(3, 5, 3, 1, -1), plain_axis(6, 13, 3, 1, -1)}, channels};
  resized.axes[1].size = 5;
  resized.axes[2].size = 13;
  cases.push_back(resized);
  for (int axis = 0; axis < 3; ++axis) {
    VolumeCase chunk = {{one, one, plain_axis(11, 11, 3, 1, -1)}, channels, channels + 2, 1, 4, axis};
    if (axis < 2) chunk.axes[1] = plain_axis(3, 3, 3, 1, -1);
    chunk.axes[axis] = plain_axis(9, 9, 3, 1, -4, 2);
    cases.push_back(chunk);
  }
  return cases;
}

TEST_P(ConvolutionKernels, PatchesAreWhatTheDefinitionSays) {
  for (const int64_t channels : {1, 3, 16, 31, 32, 33, 64})
    for (const VolumeCase& c : volume_cases(channels)) {
      expect_volume_patches(kernels(), c, 0, c.rows(), 0);
      expect_volume_patches(kernels(), c, 1, std::min<int64_t>(c.rows(), 18), 5);
    }
}

/// `type`: of the weight.
void expect_depthwise(const CpuKernels& kernels, const VolumeCase& c, DType type) {
  SCOPED_TRACE(fmt::format("{} channels, {}", c.channels, dtype_info(type).name));
  const Volume volume(c);
  const auto size = static_cast<size_t>(c.taps() * c.channels);
  std::vector<float> weights = test_values(size, 4);
  std::vector<uint16_t> halves;
  for (float& w : weights) {
    if (type == DType::kF32) continue;
    halves.push_back(type == DType::kF16 ? f32_to_f16(w) : f32_to_bf16(w));
    w = type == DType::kF16 ? f16_to_f32(halves.back()) : bf16_to_f32(halves.back());
  }
  GuardedBuffer<uint8_t> stored(static_cast<int64_t>(size) * dtype_info(type).block_bytes);
  std::memcpy(stored.data(), halves.empty() ? static_cast<const void*>(weights.data()) : halves.data(),
              static_cast<size_t>(stored.size()));
  const std::vector<float> bias = test_values(static_cast<size_t>(c.channels), 5);
  const std::vector<float> rest = test_values(static_cast<size_t>(c.rows() * c.channels), 6);
  GuardedBuffer<float> y(c.rows() * c.channels), again(c.rows() * c.channels);
  // Rows and channels in parts; the residual in place or beside.
  const auto run = [&](float* to, const float* residual, int64_t rows, int64_t channels) {
    ConvDepthwise d = {
        .input = volume.input(),
        .weight = stored.data(),
        .weight_type = type,
        .bias = bias.data(),
        .y = to,
        .y_strides = {c.axes[1].out * c.axes[2].out * c.channels, c.axes[2].out * c.channels, c.channels},
        .residual = residual,
        .scratch = scratch()};
    ConvPatchesArgs a = {};
    a.depthwise = &d;
    for (d.row_begin = 0; d.row_begin < c.rows(); d.row_begin = d.row_end) {
      d.row_end = std::min(c.rows(), d.row_begin + rows);
      for (d.c_begin = 0; d.c_begin < c.channels; d.c_begin = d.c_end) {
        d.c_end = std::min(c.channels, d.c_begin + channels);
        kernels.conv_f32(a);
      }
    }
  };
  run(y.data(), rest.data(), c.rows(), c.channels);
  for (int64_t r = 0; r < c.rows(); ++r)
    for (int64_t ch = 0; ch < c.channels; ++ch) {
      double sum = 0, parts = 0;
      for (int64_t tap = 0; tap < c.taps(); ++tap) {
        const double product =
            double{volume.at(r, tap, ch)} * double{weights[static_cast<size_t>(tap * c.channels + ch)]};
        sum += product;
        parts += std::abs(product);
      }
      sum += double{bias[static_cast<size_t>(ch)]} + double{rest[static_cast<size_t>(r * c.channels + ch)]};
      // A rounding of each product (generic) and of each sum, of at most all parts and the two numbers added last.
      ASSERT_LE(std::abs(sum - double{y[r * c.channels + ch]}), 2 * double(c.taps() + 2) * kRounding * (parts + 2))
          << "row " << r << ", channel " << ch;
    }
  for (const int64_t rows : {1, 5, 11}) {
    std::copy(rest.begin(), rest.end(), again.data());
    run(again.data(), again.data(), rows, rows == 5 ? 16 : c.channels);
    ASSERT_EQ(std::memcmp(y.data(), again.data(), static_cast<size_t>(y.size()) * 4), 0) << rows << " rows at a time";
  }
}

TEST_P(ConvolutionKernels, DepthwiseEqualsTheDefinition) {
  for (const int64_t channels : {1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 37})
    for (const VolumeCase& c : volume_cases(channels)) expect_depthwise(kernels(), c, DType::kF32);
  for (const DType type : {DType::kBF16, DType::kF16})
    for (const int64_t channels : {5, 16, 24})
      for (const VolumeCase& c : volume_cases(channels)) expect_depthwise(kernels(), c, type);
}

REDLINE_INSTANTIATE_PER_ISA(ConvolutionKernels);

}  // namespace
}  // namespace redline
