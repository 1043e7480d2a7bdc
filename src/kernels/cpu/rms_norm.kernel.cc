// y = x * weight / sqrt(mean(x^2) + eps), one row at a time; the second pass over the row hits the cache.
//
// The sum uses 4 kWidth float32 partial sums. Each has n = cols / (4 kWidth) terms, all positive, so its relative error
// is at most (n + 8) 2^-24, and that of y half as much plus 4 roundings. A row whose squares overflow gives zeros (NaN
// where x is infinite); a NaN makes its row NaN.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace redline::REDLINE_ISA_NS {
namespace {

float sum_of_squares(const float* x, int64_t count) {
  VecF32 sum[4] = {zero_f32(), zero_f32(), zero_f32(), zero_f32()};
  int64_t i = 0;
  for (; i + 4 * kWidth <= count; i += 4 * kWidth) {
    for (int j = 0; j < 4; ++j) {
      const VecF32 v = load(x + i + j * kWidth, Full{});
      sum[j] = fma(v, v, sum[j]);
    }
  }
  for_lanes(count - i, [&](int64_t k, auto lanes) {
    const VecF32 v = load(x + i + k, lanes);
    sum[0] = fma(v, v, sum[0]);
  });
  return reduce_add((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

void rms_norm(const RmsNormArgs& a) {
  for (int64_t row = 0; row < a.rows; ++row) {
    const float* x = a.x + row * a.cols;
    float* y = a.y + row * a.cols;
    const float mean = sum_of_squares(x, a.cols) / static_cast<float>(a.cols);
    const VecF32 scale = set1(1.0f / __builtin_sqrtf(mean + a.eps));
    for_lanes(a.cols, [&](int64_t i, auto lanes) {
      store(y + i, load(x + i, lanes) * scale * load(a.weight + i, lanes), lanes);
    });
  }
}

}  // namespace

void fill_rms_norm(CpuKernels& table) { table.rms_norm = rms_norm; }

}  // namespace redline::REDLINE_ISA_NS
