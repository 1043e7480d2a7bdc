// Converts activations to the layouts that linear kernels read (tensor/activation_layout.h).
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace redline::REDLINE_ISA_NS {
namespace {

constexpr float kSmallestMax = 0x1p-100f;

// A group, or what is left of the row: a multiple of kQ8Step.
void prepare_q8_group(const float* x, int64_t count, int8_t* codes, Q8Numbers& numbers) {
  float step_max[kQ8Group / kQ8Step] = {}, x_max = 0;
  VecF32 poison = zero_f32();
  for (int64_t step = 0; step < count; step += kQ8Step) {
    VecF32 largest = zero_f32();
#pragma GCC unroll 8
    for (int i = 0; i < kQ8Step / kWidth; ++i) {
      const VecF32 v = load(x + step + i * kWidth, Full{});
      largest = max(largest, max(v, zero_f32() - v));
      poison = fma(v, zero_f32(), poison);  // NaN unless every element is finite
    }
    step_max[step / kQ8Step] = reduce_max(largest);
    x_max = max_f32(step_max[step / kQ8Step], x_max);
  }
  const bool is_zero = x_max < kSmallestMax;
  const float inverse = is_zero ? 0.0f : 127.0f / x_max;
  numbers = {};
  numbers.scale = (is_zero ? 0.0f : x_max / 127.0f * (1.0f / (1 << kQ8MaxShift))) + reduce_add(poison);
  for (int64_t step = 0; step < count; step += kQ8Step) {
    int shift = kQ8MaxShift;
    float scaled = inverse;
    for (float most = x_max * 0.5f; shift > 0 && step_max[step / kQ8Step] <= most; most *= 0.5f) --shift, scaled *= 2;
    numbers.shifts[step / kQ8Step] = static_cast<uint8_t>(shift);
    numbers.packed_shifts |= shift << (2 * (step / kQ8Step));
    int32_t rounded[kQ8Step];
#pragma GCC unroll 8
    for (int i = 0; i < kQ8Step / kWidth; ++i)
      store(rounded + i * kWidth, to_i32(load(x + step + i * kWidth, Full{}) * set1(scaled)), Full{});
    int32_t sums[2] = {};
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 16; ++i) {
        // Sum the int8 value: the int32 of a NaN or infinity could overflow the sum.
        const auto code = static_cast<int8_t>(rounded[half * 16 + i]);
        codes[step + half * 16 + i] = code;
        sums[half] += code;
      }
      numbers.sums16[step / 16 + half] = static_cast<int16_t>(sums[half] * (1 << shift));
    }
    numbers.sums32[step / 32] = static_cast<int16_t>((sums[0] + sums[1]) * (1 << shift));
  }
}

void prepare_q8(const PrepareXArgs& a) {
  for (int64_t row = a.row_begin; row < a.row_end; ++row) {
    const float* x = a.x + (row - a.row_begin) * a.x_stride - a.col_begin;
    auto* out = static_cast<uint8_t*>(a.out) + row * q8_row_bytes(a.cols);
    auto* numbers = reinterpret_cast<Q8Numbers*>(out + q8_numbers_at(a.cols));
    for (int64_t col = a.col_begin; col < a.col_end; col += kQ8Group)
      prepare_q8_group(x + col, min_i64(kQ8Group, a.col_end - col), reinterpret_cast<int8_t*>(out) + col,
                       numbers[col / kQ8Group]);
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
