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

void block_exp_sum(const BlockExpSumArgs& a) {
  const VecF32 best = set1(a.best), scale = set1(a.scale);
  int64_t i = 0, block = 0;
  for (; i + kLogitBlock <= a.count; i += kLogitBlock, ++block) {
    VecF32 sum[2] = {zero_f32(), zero_f32()};
    for (int64_t j = 0; j < kLogitBlock; j += 2 * kWidth)
      for (int k = 0; k < 2; ++k) sum[k] = sum[k] + exp((load(a.x + i + j + k * kWidth, Full{}) - best) * scale);
    a.sums[block] = reduce_add(sum[0] + sum[1]);
  }
  if (i == a.count) return;
  float sum = 0;
  for (; i < a.count; ++i) sum += exp_f32((a.x[i] - a.best) * a.scale);
  a.sums[block] = sum;
}

}  // namespace

void fill_logit_blocks(CpuKernels& table) {
  table.block_max = block_max;
  table.block_exp_sum = block_exp_sum;
}

}  // namespace redline::REDLINE_ISA_NS
