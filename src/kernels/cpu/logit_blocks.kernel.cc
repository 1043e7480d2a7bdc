// Passes over a row of logits. Samplers read the logits of the few blocks that matter again (llm/logit_row.h).
#include "kernels/cpu/logit_blocks.h"

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/simd_select.h"

namespace redline::REDLINE_ISA_NS {
namespace {

/// Returns 2^max(y, -126) for y <= 0, with y = n + f, |f| <= 1/2, and 2^f approximated by `polynomial`.
template <class Polynomial>
REDLINE_INLINE VecF32 exp2_by(VecF32 y, float magic_number, const Polynomial& polynomial) {
  y = max(y, set1(-126.0f));
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits; more in the magic number adds to it.
  const VecF32 magic = set1(magic_number), shifted = y + magic, f = y - (shifted - magic);
  return bits_f32(bits_i32(polynomial(f)) + shl<23>(bits_i32(shifted)));
}

/// Returns 2^(f + exponent) for |f| <= 1/2, relative error below 4 2^-24: a polynomial of degree 5, fitted by
/// reweighted least squares to 7.5e-8 relative; the rest is rounding. It is shorter than exp(), which would dominate
/// the samplers' time.
template <int exponent>
REDLINE_INLINE VecF32 exp2_polynomial(VecF32 f) {
  constexpr float kUnit = static_cast<float>(1 << exponent);
  VecF32 p = fused(f, set1(kUnit * 0x1.5c08e4p-10f), set1(kUnit * 0x1.3d0c52p-7f));
  p = fused(p, f, set1(kUnit * 0x1.c6b6e4p-5f));
  p = fused(p, f, set1(kUnit * 0x1.ebf918p-3f));
  p = fused(p, f, set1(kUnit * 0x1.62e428p-1f));
  return fused(p, f, set1(kUnit * 0x1.000002p+0f));
}

/// Returns 2^(max(y, -126) + 20) for y <= 0.
REDLINE_INLINE VecF32 scaled_exp2(VecF32 y) { return exp2_by(y, 12582932.0f, exp2_polynomial<0>); }

/// Returns the bits of scaled_exp2, except that below y = -126 anything less than 2^-105 will do.
REDLINE_INLINE VecF32 scaled_exp2_for_sums(VecF32 y) {
#if defined(__AVX512DQ__)
  const VecF32 f = from_nearest(y);
  return scale_by_floor(exp2_polynomial<20>(f), y - f);
#else
  return scaled_exp2(y);
#endif
}

/// Sums of the weights of up to 128 logits in each lane, as integers: whole units of 2^-20, and the remainders in units
/// of 2^-42. Each added weight adds the bits of 1.5 * 2^23 to both, which total() subtracts.
struct WeightSums {
  static constexpr float kMagic = 12582912.0f;
  static constexpr uint32_t kBias = 0x4B400000;
  VecI32 whole = zero_i32(), rest = zero_i32();

  template <class Add>
  REDLINE_INLINE void add(VecF32 scaled, const Add& sum) {
    const VecF32 magic = set1(kMagic), rounded = scaled + magic;
    whole = sum(whole, bits_i32(rounded));
    // The remainder is at most 1/2, exact, and so is its product with 2^22, fused or not.
    rest = sum(rest, bits_i32(fma(from_nearest(scaled), set1(4194304.0f), magic)));
  }
  /// Returns the sum over the lanes in units of 2^-42. `added`: the number of weights.
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
  /// Returns 2^20 times the weight of x.
  REDLINE_INLINE VecF32 operator()(VecF32 x) const { return scaled_exp2((x - best) * scale); }
  /// Returns 2^20 times the weight as accurately as sums need it.
  REDLINE_INLINE VecF32 for_sums(VecF32 x) const { return scaled_exp2_for_sums((x - best) * scale); }
};

/// Calls body(x, block) for each block of 128 logits; the last block is filled up with -inf.
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
    // scaled_exp2 returns 2^-106 for all y below -126. Subtracting it makes the weights of such logits 0.
    store(a.weights + i, (weight(load(a.x + i, lanes)) - set1(0x1p-106f)) * set1(0x1p-20f), lanes);
  });
}

void exp_sums(const BlockExpSumArgs& a) {
  const WeightOf weight(a);
  for_blocks(a.x, a.count, [&](const float* x, int64_t block) {
    WeightSums sums;
    for (int64_t j = 0; j < kLogitBlock; j += kWidth)
      sums.add(weight.for_sums(load(x + j, Full{})), [](VecI32 sum, VecI32 v) { return sum + v; });
    a.sums[block] = sums.total(kLogitBlock);
  });
}

/// Returns 2^y for y <= 0 with a relative error of at most 2.7e-6, by a polynomial of degree 4.
REDLINE_INLINE VecF32 near_exp2(VecF32 y) {
#if defined(__AVX512DQ__)
  const VecF32 f = above_floor(y);
  VecF32 p = fma(f, set1(0x1.bb7cd4p-7f), set1(0x1.aa13f2p-5f));
  p = fma(p, f, set1(0x1.ee798ap-3f));
  p = fma(p, f, set1(0x1.62d166p-1f));
  return scale_by_floor(fma(p, f, set1(0x1.00002cp+0f)), y);
#else
  return exp2_by(y, 12582912.0f, [](VecF32 f) {
    VecF32 p = fma(f, set1(0x1.3997d4p-7f), set1(0x1.ca1442p-5f));
    p = fma(p, f, set1(0x1.ec06dap-3f));
    p = fma(p, f, set1(0x1.62e0dcp-1f));
    return fma(p, f, set1(0x1.ffffe8p-1f));
  });
#endif
}

/// Computes the maximum of each block, and remembers whether any logit was NaN.
struct BlockMaximum {
  static_assert(kLogitBlock % (2 * kWidth) == 0);
  Lanes nans = unordered(zero_f32(), zero_f32());

  REDLINE_INLINE float operator()(const float* x) {
    VecF32 top[2] = {load(x, Full{}), load(x + kWidth, Full{})};
    nans = either(nans, unordered(top[0], top[1]));
    for (int64_t j = 2 * kWidth; j < kLogitBlock; j += 2 * kWidth) {
      const VecF32 a = load(x + j, Full{}), b = load(x + j + kWidth, Full{});
      nans = either(nans, unordered(a, b));
      top[0] = max(top[0], a);
      top[1] = max(top[1], b);
    }
    return reduce_max(max(top[0], top[1]));
  }
  REDLINE_INLINE bool has_nan() const { return count(nans) != 0; }
};

/// Returns the sum of the exponentials of (x - best) * scale, where no x is above `best`.
REDLINE_INLINE float near_sum(const float* x, float best, VecF32 scale) {
  const VecF32 top = set1(max_f32(best, -3.40282347e38f));
  VecF32 even = zero_f32(), odd = zero_f32();
  for (int64_t j = 0; j < kLogitBlock; j += 2 * kWidth) {
    even = even + near_exp2((load(x + j, Full{}) - top) * scale);
    odd = odd + near_exp2((load(x + j + kWidth, Full{}) - top) * scale);
  }
  return reduce_add(even + odd);
}

template <bool has_sums>
bool block_max_of(const BlockMaxArgs& a) {
  BlockMaximum maximum;
  const VecF32 scale = set1(a.scale * 1.44269504f);
  for_blocks(a.x, a.count, [&](const float* x, int64_t block) {
    a.max[block] = maximum(x);
    if (has_sums) a.near_sums[block] = near_sum(x, a.max[block], scale);
  });
  return !maximum.has_nan();
}

bool block_max(const BlockMaxArgs& a) {
  return a.near_sums != nullptr ? block_max_of<true>(a) : block_max_of<false>(a);
}

void list_between(const BlockExpSumArgs& a) {
  const VecF32 low = set1(a.low), high = set1(a.high);
  int64_t listed = 0;
  for_blocks(a.x, a.count, [&](const float* x, int64_t block) {
    for (int64_t j = 0; j < kLogitBlock; j += kWidth) {
      const VecF32 v = load(x + j, Full{});
      const Lanes between = and_not(at_least(v, low), at_least(v, high));
      if (count(between) == 0) continue;
      store_chosen(a.between + listed, v, between);
      store_indices(a.places + listed, static_cast<int32_t>(block * kLogitBlock + j), between);
      listed += count(between);
    }
  });
  *a.num_between = listed;
}

void split(const BlockExpSumArgs& a) {
  const WeightOf weight(a);
  const VecF32 low = set1(a.low), high = set1(a.high);
  int64_t listed = 0;
  for_blocks(a.x, a.count, [&](const float* x, int64_t block) {
    WeightSums sums;
    int64_t added = 0;
    for (int64_t j = 0; j < kLogitBlock; j += kWidth) {
      const VecF32 v = load(x + j, Full{});
      const Lanes above = at_least(v, high), between = and_not(at_least(v, low), above);
      sums.add(weight.for_sums(v), [&](VecI32 sum, VecI32 w) { return add_where(above, sum, w); });
      added += count(above);
      store_chosen(a.between + listed, v, between);
      store_indices(a.places + listed, static_cast<int32_t>(block * kLogitBlock + j), between);
      listed += count(between);
    }
    a.sums[block] = sums.total(added);
  });
  *a.num_between = listed;
}

/// Computes split() and the sum of all weights. A block's sum is that of all weights minus those below `high`, which
/// takes no longer than adding the weights above.
void split_and_total(const BlockExpSumArgs& a) {
  const WeightOf weight(a);
  const VecF32 low = set1(a.low), high = set1(a.high);
  float* const list = a.between;
  int64_t listed = 0, total = 0;
  for_blocks(a.x, a.count, [&](const float* x, int64_t block) {
    WeightSums all, below;
    int64_t num_below = 0;
    a.begins[block] = static_cast<int32_t>(listed);
    for (int64_t j = 0; j < kLogitBlock; j += kWidth) {
      const VecF32 v = load(x + j, Full{});
      const Lanes is_below = less(v, high), between = both(at_least(v, low), is_below);
      const VecF32 scaled = weight.for_sums(v);
      all.add(scaled, [](VecI32 sum, VecI32 w) { return sum + w; });
      below.add(scaled, [&](VecI32 sum, VecI32 w) { return add_where(is_below, sum, w); });
      num_below += count(is_below);
      store_chosen(list + listed, v, between);
      listed += count(between);
    }
    const int64_t units = all.total(kLogitBlock);
    total += units;
    a.sums[block] = units - below.total(num_below);
  });
  a.begins[num_logit_blocks(a.count)] = static_cast<int32_t>(listed);
  *a.num_between = listed;
  *a.total = total;
}

void block_exp_sum(const BlockExpSumArgs& a) {
  if (a.weights != nullptr) exp_weights(a);
  if (a.total != nullptr) split_and_total(a);
  else if (a.places != nullptr && a.sums != nullptr) split(a);
  else if (a.places != nullptr) list_between(a);
  else if (a.sums != nullptr) exp_sums(a);
}

}  // namespace

void fill_logit_blocks(CpuKernels& table) {
  table.block_max = block_max;
  table.block_exp_sum = block_exp_sum;
}

}  // namespace redline::REDLINE_ISA_NS
