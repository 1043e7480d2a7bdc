// Activations as kI8 (x_form.h).
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd_strip.h"

namespace redline::REDLINE_ISA_NS {
namespace {

constexpr float kSmallestMax = 0x1p-100f;

REDLINE_INLINE void store_codes(int8_t* codes, VecI32 v) {
#if defined(__AVX512F__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), _mm512_cvtepi32_epi8(v.v));
#else
  int32_t wide[kWidth];
  store(wide, v, Full{});
  // Through int8: a NaN or an infinity leaves anything here.
  for (int i = 0; i < kWidth; ++i) codes[i] = static_cast<int8_t>(wide[i]);
#endif
}

/// Up to kI8Chunk elements; codes of 64 columns lie kXTileRows lines apart.
void prepare_chunk(const float* x, int64_t count, int8_t* codes, float* scale, int32_t* sum) {
  VecF32 largest = zero_f32(), poison = zero_f32();
  for_lanes(count, [&](int64_t i, auto lanes) REDLINE_LAMBDA {
    const VecF32 v = load(x + i, lanes);
    largest = max(largest, max(v, zero_f32() - v));
    poison = fma(v, zero_f32(), poison);  // NaN unless every element is finite
  });
  const float x_max = reduce_max(largest);
  const bool is_zero = x_max < kSmallestMax;
  const VecF32 inverse = set1(is_zero ? 0.0f : 127.0f / x_max);
  *scale = (is_zero ? 0.0f : x_max / 127.0f) + reduce_add(poison);
  VecI32 sums = zero_i32();
  const auto put = [&](int64_t i, auto lanes) REDLINE_LAMBDA {
    const VecI32 code = to_i32(load(x + i, lanes) * inverse);
    store_codes(codes + i / kI8TileColumns * kXTileRows * kXTileBytes + i % kI8TileColumns, code);
    sums = sums + sar<24>(shl<24>(code));  // as it is stored
  };
  for_lanes(count, put);
  for (int64_t i = (count + kWidth - 1) / kWidth * kWidth; i % kI8TileColumns != 0; i += kWidth)
    store_codes(codes + i / kI8TileColumns * kXTileRows * kXTileBytes + i % kI8TileColumns, zero_i32());
  int32_t parts[kWidth];
  store(parts, sums, Full{});
  int32_t total = 0;
  for (int i = 0; i < kWidth; ++i) total += parts[i];
  *sum = total;
}

void prepare_i8(const PrepareXArgs& a) {
  const int64_t panel_bytes = i8_panel_bytes(a.cols), scales_at = i8_scales_at(a.cols);
  for (int64_t row = a.row_begin; row < a.row_end; ++row) {
    const float* x = a.x + (row - a.row_begin) * a.x_stride - a.col_begin;
    uint8_t* panel = static_cast<uint8_t*>(a.out) + row / kXTileRows * panel_bytes;
    const int64_t line = row % kXTileRows;
    for (int64_t col = a.col_begin; col < a.col_end; col += kI8Chunk) {
      uint8_t* numbers = panel + scales_at + col / kI8Chunk * kI8ChunkLines + line * 4;
      prepare_chunk(x + col, min_i64(kI8Chunk, a.col_end - col),
                    reinterpret_cast<int8_t*>(panel + col * kXTileRows + line * kXTileBytes),
                    reinterpret_cast<float*>(numbers), reinterpret_cast<int32_t*>(numbers + 64));
    }
  }
}

}  // namespace

void fill_prepare_i8(CpuKernels& t) { t.prepare_x[static_cast<int>(XForm::kI8)] = prepare_i8; }

}  // namespace redline::REDLINE_ISA_NS
