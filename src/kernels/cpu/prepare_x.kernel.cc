// Converts activations to the layouts that linear kernels read (tensor/activation_layout.h).
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace redline::REDLINE_ISA_NS {
namespace {

constexpr float kSmallestMax = 0x1p-100f;

void prepare_q8_row(const float* x, int64_t groups, int8_t* codes, float* scales, int32_t* sums) {
  for (int64_t g = 0; g < groups; ++g, x += kQ8Group, codes += kQ8Group) {
    VecF32 v[kQ8Group / kWidth], largest = zero_f32(), poison = zero_f32();
#pragma GCC unroll 8
    for (int i = 0; i < kQ8Group / kWidth; ++i) {
      v[i] = load(x + i * kWidth, Full{});
      largest = max(largest, max(v[i], zero_f32() - v[i]));
      poison = fma(v[i], zero_f32(), poison);  // NaN unless every element is finite
    }
    const float x_max = reduce_max(largest);
    const bool is_zero = x_max < kSmallestMax;
    const VecF32 inverse = set1(is_zero ? 0.0f : 127.0f / x_max);
    scales[g] = (is_zero ? 0.0f : x_max / 127.0f) + reduce_add(poison);
    int32_t rounded[kQ8Group];
#pragma GCC unroll 8
    for (int i = 0; i < kQ8Group / kWidth; ++i) store(rounded + i * kWidth, to_i32(v[i] * inverse), Full{});
    for (int half = 0; half < 2; ++half) {
      int32_t sum = 0;
      for (int i = 0; i < kQ8SumGroup; ++i) {
        // Sum the int8 value: the int32 of a NaN or infinity could overflow the sum.
        const auto code = static_cast<int8_t>(rounded[half * kQ8SumGroup + i]);
        codes[half * kQ8SumGroup + i] = code;
        sum += code;
      }
      sums[2 * g + half] = sum;
    }
  }
}

void prepare_q8(const PrepareXArgs& a) {
  for (int64_t row = a.row_begin; row < a.row_end; ++row) {
    auto* out = static_cast<uint8_t*>(a.out) + row * q8_row_bytes(a.cols);
    prepare_q8_row(a.x + (row - a.row_begin) * a.x_stride, (a.col_end - a.col_begin) / kQ8Group,
                   reinterpret_cast<int8_t*>(out) + a.col_begin,
                   reinterpret_cast<float*>(out + q8_scales_at(a.cols)) + a.col_begin / kQ8Group,
                   reinterpret_cast<int32_t*>(out + q8_sums_at(a.cols)) + a.col_begin / kQ8SumGroup);
  }
}

// 32 elements: `count` from x, the rest zeros.
void prepare_tile_row(const float* x, int64_t count, BF16* out) {
  if (count == 32) {
#pragma GCC unroll 8
    for (int i = 0; i < 32 / kWidth; ++i) store(out + i * kWidth, load(x + i * kWidth, Full{}), Full{});
    return;
  }
  float padded[32] = {};
  for (int64_t i = 0; i < count; ++i) padded[i] = x[i];
  prepare_tile_row(padded, 32, out);
}

void prepare_tiles(const PrepareXArgs& a) {
  const int64_t panel_elements = tiles_panel_bytes(a.cols) / 2;
  for (int64_t row = a.row_begin; row < a.row_end; ++row) {
    const float* x = a.x + (row - a.row_begin) * a.x_stride - a.col_begin;
    BF16* out = static_cast<BF16*>(a.out) + row / kXTileRows * panel_elements + row % kXTileRows * 32;
    for (int64_t col = a.col_begin; col < a.col_end; col += 32)
      prepare_tile_row(x + col, min_i64(32, a.col_end - col), out + col * kXTileRows);
  }
}

}  // namespace

void fill_prepare_x(CpuKernels& t) {
  t.prepare_x[static_cast<int>(ActivationLayout::kI8Grouped)] = prepare_q8;
  t.prepare_x[static_cast<int>(ActivationLayout::kBf16Tiled)] = prepare_tiles;
}

}  // namespace redline::REDLINE_ISA_NS
