// Activations to kI8Tiled (tensor/activation_layout.h).
#include "kernels/cpu/codes_avx512.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd_row_panel.h"

namespace redline::REDLINE_ISA_NS {
namespace {

constexpr float kSmallestMax = 0x1p-100f;

REDLINE_INLINE void store_codes(int8_t* codes, VecI32 v) {
#if defined(__AVX512F__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), _mm512_cvtepi32_epi8(v.v));
#else
  int32_t wide[kWidth];
  store(wide, v, Full{});
  // NaN and infinity give arbitrary codes here; the conversion to int8 bounds them.
  for (int i = 0; i < kWidth; ++i) codes[i] = static_cast<int8_t>(wide[i]);
#endif
}

/// Writes the codes of all whole groups of kI8TileColumns columns; consecutive groups are kXTileRows groups apart. Adds
/// the codes to the lanes of `sums` and returns the number of columns.
REDLINE_INLINE int64_t put_whole_lines(const float* x, int64_t count, VecF32 inverse, int8_t* codes, VecI32& sums) {
#if defined(__AVX512F__)
  int64_t i = 0;
  for (; i + kI8TileColumns <= count; i += kI8TileColumns, codes += kXTileRows * kXTileBytes) {
    const auto wide = [&](int64_t j) REDLINE_LAMBDA { return to_i32(load(x + i + 16 * j, Full{}) * inverse).v; };
    const __m512i line = pack_codes(wide);
    _mm512_storeu_si512(codes, line);
    sums = dot4_u7s8(sums, set1_i32(0x01010101), {line});
  }
  return i;
#else
  (void)x, (void)count, (void)inverse, (void)codes, (void)sums;
  return 0;
#endif
}

/// Converts up to kI8Chunk elements that share a scale; codes of 64 columns are kXTileRows * 64 bytes apart.
void prepare_chunk(const float* x, int64_t count, int8_t* codes, float* scale, int32_t* sum) {
  constexpr int kAtOnce = 4;  // independent accumulators, to hide latency
  VecF32 largest[kAtOnce] = {}, poison[kAtOnce] = {};
  const auto look = [&](int which, VecF32 v) REDLINE_LAMBDA {
    largest[which] = max(largest[which], bits_f32(bits_i32(v) & set1_i32(0x7fffffff)));
    poison[which] = fma(v, zero_f32(), poison[which]);  // NaN unless every element is finite
  };
  int64_t seen = 0;
  for (; seen + kAtOnce * kWidth <= count; seen += kAtOnce * kWidth)
#pragma GCC unroll 4
    for (int j = 0; j < kAtOnce; ++j) look(j, load(x + seen + j * kWidth, Full{}));
  for_lanes(count - seen, [&](int64_t i, auto lanes) REDLINE_LAMBDA { look(0, load(x + seen + i, lanes)); });
  const float x_max = reduce_max(max(max(largest[0], largest[1]), max(largest[2], largest[3])));
  const bool is_zero = x_max < kSmallestMax;
  const VecF32 inverse = set1(is_zero ? 0.0f : 127.0f / x_max);
  *scale = (is_zero ? 0.0f : x_max / 127.0f) + reduce_add(poison[0] + poison[1] + (poison[2] + poison[3]));
  VecI32 sums = zero_i32();
  const int64_t done = put_whole_lines(x, count, inverse, codes, sums);
  const auto place = [&](int64_t i) REDLINE_LAMBDA {
    return codes + i / kI8TileColumns * kXTileRows * kXTileBytes + i % kI8TileColumns;
  };
  for_lanes(count - done, [&](int64_t i, auto lanes) REDLINE_LAMBDA {
    const VecI32 code = to_i32(load(x + done + i, lanes) * inverse);
    store_codes(place(done + i), code);
    sums = sums + sar<24>(shl<24>(code));  // as stored
  });
  for (int64_t i = (count + kWidth - 1) / kWidth * kWidth; i % kI8TileColumns != 0; i += kWidth)
    store_codes(place(i), zero_i32());
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
      uint8_t* numbers = panel + scales_at + col / kI8Chunk * kI8ChunkScaleBytes + line * 4;
      prepare_chunk(x + col, min_i64(kI8Chunk, a.col_end - col),
                    reinterpret_cast<int8_t*>(panel + col * kXTileRows + line * kXTileBytes),
                    reinterpret_cast<float*>(numbers), reinterpret_cast<int32_t*>(numbers + 64));
    }
  }
}

}  // namespace

void fill_prepare_i8(CpuKernels& t) { t.prepare_x[static_cast<int>(ActivationLayout::kI8Tiled)] = prepare_i8; }

}  // namespace redline::REDLINE_ISA_NS
