// y = norm(x) * weight * (1 + scale) + bias + shift, one row at a time in three passes: mean, squared deviations,
// result. The second and third pass hit the cache.
//
// Sums use 4 kWidth float32 partial sums of n = cols / (4 kWidth) terms, and a tail. The mean is off by at most (n +
// kWidth + 8) 2^-24 times the mean of |x|; the squares are taken around that mean, so a large mean adds no other error.
// A row with a NaN or an infinity is NaN (if not centred, an infinity gives zeros and one NaN); a row whose squares
// overflow gives zeros.
#include "kernels/cpu/layer_norm.h"

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace redline::REDLINE_ISA_NS {
namespace {

// Floats prefetched ahead of each row. Rows are short and read three times, so the hardware prefetcher starts too late.
// Prefetching past the end of x is harmless.
constexpr int64_t kPrefetchFloats = 1280, kLineFloats = 16;

float sum(const float* x, int64_t count) {
  VecF32 part[4] = {zero_f32(), zero_f32(), zero_f32(), zero_f32()};
  int64_t i = 0;
  for (; i + 4 * kWidth <= count; i += 4 * kWidth)
    for (int j = 0; j < 4; ++j) part[j] = part[j] + load(x + i + j * kWidth, Full{});
  for_lanes(count - i, [&](int64_t k, auto lanes) { part[0] = part[0] + load(x + i + k, lanes); });
  return reduce_add((part[0] + part[1]) + (part[2] + part[3]));
}

float sum_of_squares(const float* x, int64_t count, float centre) {
  VecF32 part[4] = {zero_f32(), zero_f32(), zero_f32(), zero_f32()};
  int64_t i = 0;
  for (; i + 4 * kWidth <= count; i += 4 * kWidth) {
    for (int j = 0; j < 4; ++j) {
      const VecF32 v = load(x + i + j * kWidth, Full{}) - set1(centre);
      part[j] = fma(v, v, part[j]);
    }
  }
  for (; i + kWidth <= count; i += kWidth) {
    const VecF32 v = load(x + i, Full{}) - set1(centre);
    part[0] = fma(v, v, part[0]);
  }
  // A masked tail would add centre^2 for every unused lane.
  float rest = 0;
  for (; i < count; ++i) rest += (x[i] - centre) * (x[i] - centre);
  return reduce_add((part[0] + part[1]) + (part[2] + part[3])) + rest;
}

void layer_norm(const LayerNormArgs& a) {
  const auto cols = static_cast<float>(a.cols);
  for (int64_t row = 0; row < a.rows; ++row) {
    const float* x = a.x + row * a.x_stride;
    float* y = a.y + row * a.y_stride;
    for (int64_t i = 0; i < a.cols; i += kLineFloats) __builtin_prefetch(x + kPrefetchFloats + i, 0, 3);
    const float mean = a.centred ? sum(x, a.cols) / cols : 0.0f;
    const VecF32 centre = set1(mean);
    const VecF32 inverse = set1(1.0f / __builtin_sqrtf(sum_of_squares(x, a.cols, mean) / cols + a.eps));
    for_lanes(a.cols, [&](int64_t i, auto lanes) {
      VecF32 v = (load(x + i, lanes) - centre) * inverse;
      if (a.weight) v = v * load(a.weight + i, lanes);
      if (a.scale) v = v * (set1(1.0f) + load(a.scale + i, lanes));
      if (a.bias) v = v + load(a.bias + i, lanes);
      if (a.shift) v = v + load(a.shift + i, lanes);
      store(y + i, v, lanes);
    });
  }
}

}  // namespace

void fill_layer_norm(CpuKernels& table) { table.layer_norm = layer_norm; }

}  // namespace redline::REDLINE_ISA_NS
