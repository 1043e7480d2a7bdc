// The products of attention_bf16_pipeline.h by vdpbf16ps, without tiles. Sums are registers, over all of head_dim or
// all positions of a pass, and both operands are read in place.
//
// Between the products of scores, earlier scores become weights. On Zen 4 only multiplications compete with dot
// products: additions, maxima, rounding and integers have ports of their own (docs/history/performance-notes.md), so
// 2^x takes its exponent by an integer addition.
//
// Pairs of k are summed in rising order into the sums themselves; the tile instruction sums even and odd k apart and
// adds both at the end.
#pragma once

#include "kernels/cpu/attention/attention_bf16_pipeline.h"
#include "kernels/cpu/simd_row_panel.h"

// vdpbf16ps comes with AVX-512.
#if defined(__AVX512BF16__)
namespace redline::REDLINE_ISA_NS {

class AttentionDots {
  using Job = bf16_tiled::Job;
  static constexpr int64_t kQueryRows = bf16_tiled::kQueryRows, kStep = bf16_tiled::kStep;
  static constexpr int kRows = 8;  // rows by 32 query rows: 16 sums, which share two loads and each a broadcast
  static constexpr int64_t kRowBytes = 64;
  static_assert(bf16_tiled::kScoreUnit == 1, "exponents are computed from scores as they are");

 public:
  static constexpr bool kIsDots = true;

  /// Computes scores = keys . queries for 16 positions. Meanwhile a job is done, if there is one, and the first keys of
  /// the next call are prefetched.
  static void score(const BF16* q, const BF16* keys, const BF16* next, int64_t head_dim, float* scores,
                    const Job* job) {
    const int64_t pairs = (head_dim + 1) / 2;
    const BF16* second = keys + kRows * kStep;
    if (job == nullptr) {
      score_rows<false>(q, keys, second, pairs, scores, {});
      score_rows<false>(q, second, next, pairs, scores + kRows * kQueryRows, {});
    } else {
      score_rows<true>(q, keys, second, pairs, scores, {job, 0});
      score_rows<true>(q, second, next, pairs, scores + kRows * kQueryRows, {job, kWidth});
    }
  }

  /// Adds values . weights to `into`, [head_dim][query rows].
  static void add_values(const BF16* const* values, const int32_t* const* weights, int64_t blocks, int64_t head_dim,
                         float* into, const float* next) {
    for (int64_t d = 0; d < head_dim; d += kRows, into += kRows * kQueryRows)
      add_rows(values, d * kStep, weights, blocks, into, d + kRows < head_dim ? into + kRows * kQueryRows : next);
  }

 private:
  /// Half of a job: 16 query rows.
  struct HalfJob {
    const Job* job = nullptr;
    int64_t query_row = 0;
  };

  REDLINE_INLINE static VecI32 broadcast(const char* pair) {
    int32_t both;
    __builtin_memcpy(&both, pair, 4);
    return set1_i32(both);
  }

  /// Returns the bits of Exponential::bits for x in [-126, 127), because the other rows of the call decide whether a
  /// job is done here or by weigh_exactly. Smaller x give zero or a subnormal, which products treat as zero.
  REDLINE_INLINE static VecI32 exponential(VecF32 x) {
    const bf16_tiled::Exponential e;
    x = max(set1(-127.0f), x);  // this order keeps a NaN
    const VecF32 whole = {_mm512_roundscale_ps(x.v, 0x09)}, r = x - whole;
    const VecF32 p = fma(fma(fma(r, e.c3, e.c2), r, e.c1), r, e.c0);
    return bits_i32(p) + shl<23>(to_i32(whole));
  }

  template <bool kHasJob>
  [[gnu::noinline]] static void score_rows(const BF16* q, const BF16* keys, const BF16* next, int64_t pairs,
                                           float* scores, HalfJob half) {
    const auto* const left = reinterpret_cast<const char*>(keys);
    const auto* const soon = reinterpret_cast<const char*>(next);
    const auto* right = reinterpret_cast<const int32_t*>(q);
    VecF32 sum[kRows][2];
    unroll<kRows>([&](auto r) REDLINE_LAMBDA { sum[r][0] = sum[r][1] = zero_f32(); });
    const float* from = nullptr;
    int32_t* to = nullptr;
    VecF32 start, total, largest = zero_f32();
    if constexpr (kHasJob) {
      from = half.job->scores + half.query_row;
      to = half.job->weights + half.query_row;
      start = load(half.job->reference->exact + half.query_row, Full{});
      total = load(half.job->reference->total + half.query_row, Full{});
    }
    int64_t pair = 0;
    for (int64_t i = 1; i <= bf16_tiled::kJobPairs; ++i) {
      for (const int64_t end = i * pairs / bf16_tiled::kJobPairs; pair < end; ++pair, right += kQueryRows) {
        const int64_t step = pair / 16 * bf16_tiled::kTileElements * 2;
        const VecI32 x = load_i32(right), y = load_i32(right + kWidth);
        const char* at = left + step + pair % 16 * 4;
        __builtin_prefetch(soon + step + pair % kRows * kRowBytes, 0, 3);
        unroll<kRows>([&](auto r) REDLINE_LAMBDA {
          const VecI32 both = broadcast(at + r * kRowBytes);
          sum[r][0] = dot2_bf16(sum[r][0], both, x);
          sum[r][1] = dot2_bf16(sum[r][1], both, y);
        });
      }
      if constexpr (kHasJob) {
        const VecI32 upper = set1_i32(static_cast<int32_t>(0xffff0000u));
        const VecF32 first = load(from, Full{}) + start, second = load(from + kQueryRows, Full{}) + start;
        largest = max(largest, max(first, second));
        const VecI32 a = exponential(first), b = exponential(second) & upper;
        store(to, shr<16>(a) | b, Full{});
        total = total + (bits_f32(a & upper) + bits_f32(b));
        from += 2 * kQueryRows;
        to += kQueryRows;
      }
    }
    unroll<kRows>([&](auto r) REDLINE_LAMBDA {
      store(scores + r * kQueryRows, sum[r][0], Full{});
      store(scores + r * kQueryRows + kWidth, sum[r][1], Full{});
    });
    if constexpr (kHasJob) {
      // The exponent of such a weight would wrap. (A NaN is one by now.)
      const __mmask16 far = _mm512_cmp_ps_mask(largest.v, _mm512_set1_ps(126.0f), _CMP_GT_OQ);
      _mm512_mask_storeu_ps(half.job->reference->total + half.query_row, static_cast<__mmask16>(~far), total.v);
      if (far != 0) [[unlikely]]
        weigh_exactly(*half.job, static_cast<uint32_t>(far) << half.query_row);
    }
  }

  [[gnu::noinline]] static void add_rows(const BF16* const* values, int64_t at, const int32_t* const* weights,
                                         int64_t blocks, float* into, const float* next) {
    VecF32 sum[kRows][2];
    unroll<kRows>([&](auto r) REDLINE_LAMBDA {
      sum[r][0] = load(into + r * kQueryRows, Full{});
      sum[r][1] = load(into + r * kQueryRows + kWidth, Full{});
      __builtin_prefetch(next + r * kQueryRows, 0, 3);
      __builtin_prefetch(next + r * kQueryRows + kWidth, 0, 3);
    });
    for (int64_t b = 0; b < blocks; ++b) {
      const auto* left = reinterpret_cast<const char*>(values[b] + at);
      const int32_t* right = weights[b];
      // Prefetches the following rows.
      unroll<kRows>([&](auto r) REDLINE_LAMBDA { __builtin_prefetch(left + (kRows + r) * kRowBytes, 0, 3); });
      for (int pair = 0; pair < 16; ++pair, left += 4, right += kQueryRows) {
        const VecI32 x = load_i32(right), y = load_i32(right + kWidth);
        unroll<kRows>([&](auto r) REDLINE_LAMBDA {
          const VecI32 both = broadcast(left + r * kRowBytes);
          sum[r][0] = dot2_bf16(sum[r][0], both, x);
          sum[r][1] = dot2_bf16(sum[r][1], both, y);
        });
      }
    }
    unroll<kRows>([&](auto r) REDLINE_LAMBDA {
      store(into + r * kQueryRows, sum[r][0], Full{});
      store(into + r * kQueryRows + kWidth, sum[r][1], Full{});
    });
  }
};

}  // namespace redline::REDLINE_ISA_NS
#endif
