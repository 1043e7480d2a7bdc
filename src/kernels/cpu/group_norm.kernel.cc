// Mean and squared deviations without cancellation. Each block of rows stays in the cache for two passes, the second
// one around the mean of the first, which it corrects. Blocks and channels of a group are merged by the formulas of
// Chan, Golub and LeVeque 1983 (equations 2.1), in float64.
#include "kernels/cpu/group_norm.h"

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace redline::REDLINE_ISA_NS {
namespace {

constexpr int64_t kBlockBytes = 256 << 10, kMaxBlockRows = 128;
constexpr int kVecs = 4;  // sums held in registers

struct Sum {
  double mean, deviations;
};

struct Scratch {
  float mean[kMaxGroupNormChannels];
  float deviations[kMaxGroupNormChannels];
  Sum groups[kMaxGroupNormChannels];
};
static_assert(sizeof(Scratch) <= kScratchBytes);

/// Computes mean and sum of squared deviations over the rows for each channel of kCount vectors from x on.
template <int kCount, class Lanes>
REDLINE_INLINE void channel_sums(const float* x, int64_t rows, int64_t stride, Lanes lanes, float* mean,
                                 float* deviations) {
  VecF32 sum[kCount], m[kCount], off[kCount], square[kCount];
#pragma GCC unroll 4
  for (int v = 0; v < kCount; ++v) sum[v] = off[v] = square[v] = zero_f32();
  for (int64_t r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kCount; ++v) sum[v] = sum[v] + load(x + r * stride + v * kWidth, lanes);
  }
  const VecF32 share = set1(1.0f / static_cast<float>(rows));
#pragma GCC unroll 4
  for (int v = 0; v < kCount; ++v) m[v] = sum[v] * share;
  for (int64_t r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kCount; ++v) {
      const VecF32 d = load(x + r * stride + v * kWidth, lanes) - m[v];
      off[v] = off[v] + d;
      square[v] = fma(d, d, square[v]);
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kCount; ++v) {
    const VecF32 shift = off[v] * share;
    store(mean + v * kWidth, m[v] + shift, lanes);
    store(deviations + v * kWidth, max(zero_f32(), square[v] - off[v] * shift), lanes);
  }
}

void block_sums(const float* x, int64_t rows, int64_t channels, Scratch& s) {
  int64_t c = 0;
  for (; c + kVecs * kWidth <= channels; c += kVecs * kWidth)
    channel_sums<kVecs>(x + c, rows, channels, Full{}, s.mean + c, s.deviations + c);
  for_lanes(channels - c, [&](int64_t i, auto lanes) {
    channel_sums<1>(x + c + i, rows, channels, lanes, s.mean + c + i, s.deviations + c + i);
  });
}

void group_norm_sums(const GroupNormArgs& a) {
  auto& s = *static_cast<Scratch*>(a.scratch);
  const int64_t width = a.channels / a.groups;
  const int64_t block = max_i64(1, min_i64(kMaxBlockRows, kBlockBytes / (a.channels * 4)));
  for (int64_t g = 0; g < a.groups; ++g) s.groups[g] = {0, 0};
  for (int64_t row = 0; row < a.rows; row += block) {
    const int64_t rows = min_i64(block, a.rows - row);
    block_sums(a.x + row * a.channels, rows, a.channels, s);
    // n elements so far, plus `more` of this block.
    const double n = static_cast<double>(row * width), more = static_cast<double>(rows * width);
    for (int64_t g = 0; g < a.groups; ++g) {
      const float *mean = s.mean + g * width, *deviations = s.deviations + g * width;
      double block_mean = 0, block_deviations = 0;
      for (int64_t c = 0; c < width; ++c) {
        block_mean += static_cast<double>(mean[c]);
        block_deviations += static_cast<double>(deviations[c]);
      }
      block_mean /= static_cast<double>(width);
      for (int64_t c = 0; c < width; ++c) {
        const double d = static_cast<double>(mean[c]) - block_mean;
        block_deviations += static_cast<double>(rows) * d * d;
      }
      const double delta = block_mean - s.groups[g].mean;
      s.groups[g].mean += delta * more / (n + more);
      s.groups[g].deviations += block_deviations + delta * delta * n * more / (n + more);
    }
  }
  for (int64_t g = 0; g < a.groups; ++g) {
    a.sums[2 * g] = static_cast<float>(s.groups[g].mean);
    a.sums[2 * g + 1] = static_cast<float>(s.groups[g].deviations);
  }
}

template <bool kSilu>
void normalize(const GroupNormArgs& a) {
  for (int64_t r = 0; r < a.rows; ++r) {
    const float* x = a.x + r * a.channels;
    float* y = a.y + r * a.channels;
    for_lanes(a.channels, [&](int64_t c, auto lanes) {
      VecF32 v = fma(load(x + c, lanes), load(a.scale + c, lanes), load(a.shift + c, lanes));
      if constexpr (kSilu) v = v / (set1(1.0f) + exp(zero_f32() - v));
      store(y + c, v, lanes);
    });
  }
}

void group_norm(const GroupNormArgs& a) { a.silu ? normalize<true>(a) : normalize<false>(a); }

}  // namespace

void fill_group_norm(CpuKernels& table) {
  table.group_norm_sums = group_norm_sums;
  table.group_norm = group_norm;
}

}  // namespace redline::REDLINE_ISA_NS
