// Passes over a row of logits. Samplers read the logits of the few blocks that matter again (llm/logit_row.h).
#include "kernels/cpu/logit_blocks.h"

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/simd_select.h"

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

/// 2^y for y <= 0, below -126 as at -126: y = n + f with |f| <= 1/2, and `polynomial` is near 2^f.
template <class Polynomial>
REDLINE_INLINE VecF32 exp2_by(VecF32 y, float magic_number, const Polynomial& polynomial) {
  y = max(y, set1(-126.0f));
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits; more in the magic number adds to it.
  const VecF32 magic = set1(magic_number), shifted = y + magic, f = y - (shifted - magic);
  return bits_f32(bits_i32(polynomial(f)) + shl<23>(bits_i32(shifted)));
}

/// 2^(y + 20) for y <= 0, relative error below 4 2^-24: a polynomial of degree 5, fitted by reweighted least
/// squares to 7.5e-8 relative; the rest is rounding. Shorter than exp(), which bounds the samplers' time.
REDLINE_INLINE VecF32 scaled_exp2(VecF32 y) {
  return exp2_by(y, 12582932.0f, [](VecF32 f) {
    VecF32 p = fused(f, set1(0x1.5c08e4p-10f), set1(0x1.3d0c52p-7f));
    p = fused(p, f, set1(0x1.c6b6e4p-5f));
    p = fused(p, f, set1(0x1.ebf918p-3f));
    p = fused(p, f, set1(0x1.62e428p-1f));
    return fused(p, f, set1(0x1.000002p+0f));
  });
}

/// Sums of weights of up to 128 logits by lane, as integers: units of 2^-20, and the remainders in units of 2^-42, both
/// biased by the bits of 1.5 * 2^23 for each weight that was added.
struct WeightSums {
  static constexpr float kMagic = 12582912.0f;
  static constexpr uint32_t kBias = 0x4B400000;
  VecI32 whole = zero_i32(), rest = zero_i32();

  template <class Add>
  REDLINE_INLINE void add(VecF32 scaled, const Add& sum) {
    const VecF32 magic = set1(kMagic), rounded = scaled + magic;
    whole = sum(whole, bits_i32(rounded));
    // The remainder is at most 1/2, exact, and so is its product with 2^22.
    rest = sum(rest, bits_i32((scaled - (rounded - magic)) * set1(4194304.0f) + magic));
  }
  /// `added`: the number of weights.
  REDLINE_INLINE int64_t total(int64_t added) const {
    const LaneSums sums = reduce_add(whole, rest);
    const uint32_t bias = kBias * static_cast<uint32_t>(added);
    return int64_t{static_cast<int32_t>(static_cast<uint32_t>(sums.a) - bias)} * (1 << 22) +
           static_cast<int32_t>(static_cast<uint32_t>(sums.b) - bias);
  }
};

struct WeightOf {
  VecF32 best, scale;
  explicit WeightOf(const BlockExpSumArgs& a) : best(set1(a.best)), scale(set1(a.scale * 1.44269504f)) {}
  /// 2^20 times the weight.
  REDLINE_INLINE VecF32 operator()(VecF32 x) const { return scaled_exp2((x - best) * scale); }
};

/// body(x, block) for blocks of 128 logits; the last one is filled up with -inf.
template <class Body>
REDLINE_INLINE void for_blocks(const float* x, int64_t count, const Body& body) {
  int64_t i = 0, block = 0;
  for (; i + kLogitBlock <= count; i += kLogitBlock, ++block) body(x + i, block);
  if (i == count) return;
  float last[kLogitBlock];
  for (int64_t j = 0; j < kLogitBlock; ++j) last[j] = i + j < count ? x[i + j] : -__builtin_inff();
  body(last, block);
}

void exp_weights(const BlockExpSumArgs& a) {
  const WeightOf weight(a);
  for_lanes(a.count, [&](int64_t i, auto lanes) {
    // Less the weight that stands for everything smaller.
    store(a.weights + i, (weight(load(a.x + i, lanes)) - set1(0x1p-106f)) * set1(0x1p-20f), lanes);
  });
}

void exp_sums(const BlockExpSumArgs& a) {
  const WeightOf weight(a);
  for_blocks(a.x, a.count, [&](const float* x, int64_t block) {
    WeightSums sums;
    for (int64_t j = 0; j < kLogitBlock; j += kWidth)
      sums.add(weight(load(x + j, Full{})), [](VecI32 sum, VecI32 v) { return sum + v; });
    a.sums[block] = sums.total(kLogitBlock);
  });
}

/// 2^y for y up to 0 within 1e-4, relatively: a polynomial of degree 3, fitted to 7.5e-5.
REDLINE_INLINE VecF32 near_exp2(VecF32 y) {
  return exp2_by(y, 12582912.0f, [](VecF32 f) {
    VecF32 p = fma(f, set1(0x1.c3f760p-5f), set1(0x1.f0de1ap-3f));
    p = fma(p, f, set1(0x1.62f31ap-1f));
    return fma(p, f, set1(0x1.fff692p-1f));
  });
}

template <class Exponent>
void near_sums_of(const BlockExpSumArgs& a, const Exponent& exponent) {
  for_blocks(a.x, a.count, [&](const float* x, int64_t block) {
    VecF32 even = zero_f32(), odd = zero_f32();
    for (int64_t j = 0; j < kLogitBlock; j += 2 * kWidth) {
      even = even + near_exp2(exponent(load(x + j, Full{})));
      odd = odd + near_exp2(exponent(load(x + j + kWidth, Full{})));
    }
    a.near_sums[block] = reduce_add(even + odd);
  });
}

void near_sums(const BlockExpSumArgs& a) {
  const float scale = a.scale * 1.44269504f, shift = -a.best * scale;
  const VecF32 best = set1(a.best), scales = set1(scale), shifts = set1(shift);
  // One rounding of numbers up to 512 moves an exponent by 2^-15.
  if (shift < 256 && shift > -256) near_sums_of(a, [&](VecF32 x) { return fma(x, scales, shifts); });
  else near_sums_of(a, [&](VecF32 x) { return (x - best) * scales; });
}

template <bool has_total>
void split(const BlockExpSumArgs& a) {
  const WeightOf weight(a);
  const VecF32 low = set1(a.low), high = set1(a.high);
  int64_t listed = 0, total = 0;
  for_blocks(a.x, a.count, [&](const float* x, int64_t block) {
    WeightSums sums, all;
    int64_t added = 0;
    for (int64_t j = 0; j < kLogitBlock; j += kWidth) {
      const VecF32 v = load(x + j, Full{});
      const Lanes above = at_least(v, high), between = and_not(at_least(v, low), above);
      const VecF32 scaled = weight(v);
      sums.add(scaled, [&](VecI32 sum, VecI32 w) { return add_where(above, sum, w); });
      if (has_total) all.add(scaled, [](VecI32 sum, VecI32 w) { return sum + w; });
      added += count(above);
      store_chosen(a.between + listed, v, between);
      store_indices(a.places + listed, static_cast<int32_t>(block * kLogitBlock + j), between);
      listed += count(between);
    }
    if (a.sums != nullptr) a.sums[block] = sums.total(added);
    if (has_total) total += all.total(kLogitBlock);
  });
  *a.num_between = listed;
  if (has_total) *a.total = total;
}

void block_exp_sum(const BlockExpSumArgs& a) {
  if (a.weights != nullptr) exp_weights(a);
  if (a.near_sums != nullptr) near_sums(a);
  if (a.places != nullptr && a.total != nullptr) split<true>(a);
  else if (a.places != nullptr) split<false>(a);
  else if (a.sums != nullptr) exp_sums(a);
}

}  // namespace

void fill_logit_blocks(CpuKernels& table) {
  table.block_max = block_max;
  table.block_exp_sum = block_exp_sum;
}

}  // namespace redline::REDLINE_ISA_NS
