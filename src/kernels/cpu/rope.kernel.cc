// Rotary position embedding over pairs (i, i + h), h = rotary_dim / 2 (Su et al. 2021, arXiv:2104.09864; half-split
// order). Three roundings per element: the error is at most 1.5 2^-23 (|x[i]| + |x[i + h]|).
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace redline::REDLINE_ISA_NS {
namespace {

void rope(const RopeArgs& a) {
  const int64_t half = a.rotary_dim / 2;
  for (int64_t row = 0; row < a.rows; ++row) {
    const float* cosine = a.cosine + row * half;
    const float* sine = a.sine + row * half;
    for (int64_t head = 0; head < a.heads; ++head) {
      const float* x = a.x + (row * a.heads + head) * a.head_dim;
      float* y = a.y + (row * a.heads + head) * a.head_dim;
      for_lanes(half, [&](int64_t i, auto lanes) {
        const VecF32 first = load(x + i, lanes), second = load(x + half + i, lanes);
        const VecF32 c = load(cosine + i, lanes), s = load(sine + i, lanes);
        store(y + i, first * c - second * s, lanes);
        store(y + half + i, second * c + first * s, lanes);
      });
      if (y != x) {
        const int64_t rotated = 2 * half;
        for_lanes(a.head_dim - rotated,
                  [&](int64_t i, auto lanes) { store(y + rotated + i, load(x + rotated + i, lanes), lanes); });
      }
    }
  }
}

}  // namespace

void fill_rope(CpuKernels& table) { table.rope = rope; }

}  // namespace redline::REDLINE_ISA_NS
