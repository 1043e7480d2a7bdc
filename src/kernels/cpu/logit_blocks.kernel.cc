// One pass over a row of logits. Samplers read the logits of the few blocks that matter again (llm/logit_row.h).
#include "kernels/cpu/logit_blocks.h"

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace redline::REDLINE_ISA_NS {
namespace {

static_assert(kLogitBlock % (2 * kWidth) == 0);

bool block_max(const BlockMaxArgs& a) {
  const VecI32 magnitude = set1_i32(0x7fffffff), infinity = set1_i32(0x7f800000);
  VecI32 nans = zero_i32();  // the sign of a lane is set once it has seen a NaN
  int64_t i = 0, block = 0;
  for (; i + kLogitBlock <= a.count; i += kLogitBlock, ++block) {
    VecF32 top[2] = {load(a.x + i, Full{}), load(a.x + i + kWidth, Full{})};
    nans = nans | (infinity - (bits_i32(top[0]) & magnitude)) | (infinity - (bits_i32(top[1]) & magnitude));
    for (int64_t j = 2 * kWidth; j < kLogitBlock; j += 2 * kWidth)
      for (int k = 0; k < 2; ++k) {
        const VecF32 v = load(a.x + i + j + k * kWidth, Full{});
        top[k] = max(top[k], v);
        nans = nans | (infinity - (bits_i32(v) & magnitude));
      }
    a.max[block] = reduce_max(max(top[0], top[1]));
  }
  int32_t lanes[kWidth];
  store(lanes, nans, Full{});
  int32_t has_nan = 0;
  for (const int32_t lane : lanes) has_nan |= lane < 0;
  if (i < a.count) {
    float top = a.x[i];
    for (; i < a.count; ++i) {
      has_nan |= a.x[i] != a.x[i];
      top = max_f32(a.x[i], top);
    }
    a.max[block] = top;
  }
  return has_nan == 0;
}

/// 2^y for y <= 0, relative error below 4 2^-24; below -126 as at -126. y = n + f with |f| <= 1/2, then a polynomial of
/// degree 5, fitted by reweighted least squares to 7.5e-8 relative; the rest is rounding. Shorter than exp(), which bounds
/// the samplers' time.
REDLINE_INLINE VecF32 exp2_at_most_1(VecF32 y) {
  y = max(y, set1(-126.0f));
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  const VecF32 magic = set1(12582912.0f), shifted = y + magic, f = y - (shifted - magic);
  VecF32 p = fma(f, set1(0x1.5c08e4p-10f), set1(0x1.3d0c52p-7f));
  p = fma(p, f, set1(0x1.c6b6e4p-5f));
  p = fma(p, f, set1(0x1.ebf918p-3f));
  p = fma(p, f, set1(0x1.62e428p-1f));
  p = fma(p, f, set1(0x1.000002p+0f));
  return bits_f32(bits_i32(p) + shl<23>(bits_i32(shifted)));
}

template <bool is_limited>
REDLINE_INLINE void exp_sum(const BlockExpSumArgs& a) {
  const VecF32 best = set1(a.best), scale = set1(a.scale * 1.44269504f), limit = set1(a.limit);
  const auto term = [&](VecF32 x) {
    const VecF32 value = exp2_at_most_1((x - best) * scale);
    if constexpr (!is_limited) return value;
    return bits_f32(bits_i32(value) & sar<31>(bits_i32(x - limit)));  // the sign of x - limit in all bits
  };
  int64_t i = 0, block = 0;
  for (; i + kLogitBlock <= a.count; i += kLogitBlock, ++block) {
    VecF32 sum[2] = {zero_f32(), zero_f32()};
    for (int64_t j = 0; j < kLogitBlock; j += 2 * kWidth)
      for (int k = 0; k < 2; ++k) sum[k] = sum[k] + term(load(a.x + i + j + k * kWidth, Full{}));
    a.sums[block] = reduce_add(sum[0] + sum[1]);
  }
  if (i == a.count) return;
  float sum = 0;
  for (; i < a.count; ++i) {
    float lanes[kWidth];
    store(lanes, term(set1(a.x[i])), Full{});
    sum += lanes[0];
  }
  a.sums[block] = sum;
}

void block_exp_sum(const BlockExpSumArgs& a) {
  if (a.limit == __builtin_inff()) exp_sum<false>(a);
  else exp_sum<true>(a);
}

}  // namespace

void fill_logit_blocks(CpuKernels& table) {
  table.block_max = block_max;
  table.block_exp_sum = block_exp_sum;
}

}  // namespace redline::REDLINE_ISA_NS
