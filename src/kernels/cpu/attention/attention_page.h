// Helpers of attention and kv_append: element offsets in a KV page, sums over pairs, and the merge of chunks.
//
// Vector lanes hold pairs, as they lie in memory: two elements of head_dim of one token (K), or one element of head_dim
// of two tokens (V). A multiply-add broadcasts a pair of the other operand; the two sums of a pair are added at the
// end.
#pragma once

#include "kernels/cpu/attention/attention_args.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"
#include "tensor/kv_limits.h"

namespace redline::REDLINE_ISA_NS {

constexpr int64_t kMaxHeadDim = kMaxKvHeadDim;
constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;

REDLINE_INLINE int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/// Returns the next `count` elements of scratch, which begin on a cache line of their own, and advances `from`.
template <class T>
REDLINE_INLINE T* take(char*& from, int64_t count) {
  char* at = from;
  from += round_up(count * static_cast<int64_t>(sizeof(T)), 64);
  return reinterpret_cast<T*>(at);
}

/// Returns head_dim padded to whole pairs, as stored in a page.
REDLINE_INLINE int64_t even(int64_t head_dim) { return (head_dim + 1) & ~int64_t{1}; }
/// Returns the offset of an element of K; `token` is its index in the page.
template <class Element>
REDLINE_INLINE int64_t key_place(int64_t token, int64_t d, int64_t head_dim) {
  constexpr int64_t block = kKvBlockTokens;
  return token / block * block * even(head_dim) + (d / 2 * block + token % block) * 2 + d % 2;
}
template <class Element>
REDLINE_INLINE int64_t value_place(int64_t token, int64_t d, int64_t head_dim) {
  return (token / 2 * even(head_dim) + d) * 2 + token % 2;
}
constexpr int64_t kKeyStep = 32;  ///< elements of head_dim that are contiguous in bfloat16 keys
template <>
REDLINE_INLINE int64_t key_place<BF16>(int64_t token, int64_t d, int64_t head_dim) {
  constexpr int64_t block = kKvBlockTokens;
  const int64_t step = d / kKeyStep * kKeyStep, width = min_i64(kKeyStep, even(head_dim) - step);
  return token / block * block * even(head_dim) + step * block + token % block * width + d % kKeyStep;
}
template <>
REDLINE_INLINE int64_t value_place<BF16>(int64_t token, int64_t d, int64_t) {
  return d * kKvPageTokens + token;
}

// set_pair broadcasts the two floats at p to every pair of lanes. Lane i of add_pairs is the sum of pair i of a, then
// b.
#if defined(__AVX512F__)
REDLINE_INLINE VecF32 set_pair(const float* p) {
  double pair;
  __builtin_memcpy(&pair, p, sizeof(pair));
  return {_mm512_castpd_ps(_mm512_set1_pd(pair))};
}
REDLINE_INLINE VecF32 add_pairs(VecF32 a, VecF32 b) {
  const __m512 sum = _mm512_add_ps(_mm512_shuffle_ps(a.v, b.v, 0x88), _mm512_shuffle_ps(a.v, b.v, 0xdd));
  const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
  return {_mm512_castpd_ps(_mm512_permutexvar_pd(order, _mm512_castps_pd(sum)))};
}
#elif defined(__AVX2__)
REDLINE_INLINE VecF32 set_pair(const float* p) {
  double pair;
  __builtin_memcpy(&pair, p, sizeof(pair));
  return {_mm256_castpd_ps(_mm256_set1_pd(pair))};
}
REDLINE_INLINE VecF32 add_pairs(VecF32 a, VecF32 b) {
  const __m256 sum = _mm256_add_ps(_mm256_shuffle_ps(a.v, b.v, 0x88), _mm256_shuffle_ps(a.v, b.v, 0xdd));
  return {_mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(sum), 0xd8))};
}
#else
REDLINE_INLINE VecF32 set_pair(const float* p) { return {RawF32{p[0], p[1], p[0], p[1]}}; }
REDLINE_INLINE VecF32 add_pairs(VecF32 a, VecF32 b) {
  return {RawF32{a.v[0] + a.v[1], a.v[2] + a.v[3], b.v[0] + b.v[1], b.v[2] + b.v[3]}};
}
#endif

/// The contribution of some positions to one query row: sums[d] = sum_p e^(score[p] - max) v[p][d]; total is the sum of
/// weights.
struct Partial {
  float* sums;  ///< head_dim rounded up to a multiple of 16
  float max, total;
};
REDLINE_INLINE bool saw_nothing(const Partial& p) { return p.max == -__builtin_inff() && p.total == 0.0f; }

/// Adds `part`, which covers later positions, to `into`. Adding to an empty partial result gives the bits of part.
REDLINE_INLINE void fold(Partial& into, const Partial& part, int64_t head_dim) {
  if (saw_nothing(part)) return;
  const float top = part.max > into.max ? part.max : into.max;
  const float a = saw_nothing(into) ? 0.0f : exp_f32(into.max - top), b = exp_f32(part.max - top);
  into.total = into.total * a + part.total * b;
  into.max = top;
  for (int64_t d = 0; d < head_dim; d += kWidth) {
    const VecF32 old = load(into.sums + d, Full{}) * set1(a);
    store(into.sums + d, old + load(part.sums + d, Full{}) * set1(b), Full{});
  }
}

/// Returns the query of a row and head of the group.
REDLINE_INLINE const float* query_of(const AttentionArgs& a, int64_t query_row) {
  const int64_t row = query_row / a.group;
  return a.q + (a.row_places != nullptr ? a.row_places[row] : row) * a.q_stride + query_row % a.group * a.head_dim;
}
/// Returns the sink of a query row, or nullptr.
REDLINE_INLINE const float* sink_of(const float* sinks, int64_t group, int64_t query_row) {
  return sinks == nullptr ? nullptr : sinks + query_row % group;
}
/// Returns true if the call itself merges the results of chunks, rather than attention_merge.
REDLINE_INLINE bool merges(const AttentionArgs& a) { return a.partials == nullptr || a.merges_chunks; }

/// Returns one query row of AttentionArgs::partials.
REDLINE_INLINE Partial partial_at(const float* query_row, int64_t head_dim) {
  const float* tail = query_row + attention_partial_floats(head_dim) - 16;
  return {const_cast<float*>(query_row), tail[0], tail[1]};
}
REDLINE_INLINE void store_tail(const Partial& p, int64_t head_dim) {
  float* tail = p.sums + attention_partial_floats(head_dim) - 16;
  tail[0] = p.max;
  tail[1] = p.total;
}
REDLINE_INLINE void clear(Partial& p, int64_t head_dim) {
  p.max = -__builtin_inff();
  p.total = 0.0f;
  for (int64_t d = 0; d < head_dim; d += kWidth) store(p.sums + d, zero_f32(), Full{});
}
REDLINE_INLINE void write_partial(const Partial& p, int64_t head_dim, float* out) {
  for (int64_t d = 0; d < head_dim; d += kWidth) store(out + d, load(p.sums + d, Full{}), Full{});
  store_tail({out, p.max, p.total}, head_dim);
}
/// Returns the reciprocal of the divisor, with e^sink added to it.
REDLINE_INLINE float share_beside_sink(const Partial& p, float sink) {
  const float top = max_f32(p.max, sink), own = exp_f32(p.max - top);
  return own / (p.total * own + exp_f32(sink - top));
}
/// Writes a row of y, zeros if it has seen nothing. `sink`: the logit that is added to the divisor, or nullptr.
REDLINE_INLINE void write_row(const Partial& p, int64_t head_dim, float* y, const float* sink) {
  const VecF32 scale = set1(saw_nothing(p) ? 0.0f : sink == nullptr ? 1.0f / p.total : share_beside_sink(p, *sink));
  for_lanes(head_dim, [&](int64_t d, auto lanes) { store(y + d, load(p.sums + d, Full{}) * scale, lanes); });
}

/// Processes the partial result of the call's `index`-th chunk: adds it to `all` or, if the call does not merge, stores
/// it for attention_merge.
REDLINE_INLINE void keep_chunk(const AttentionArgs& a, const Partial& part, int64_t index, int64_t query_row,
                               Partial& all) {
  if (merges(a)) return fold(all, part, a.head_dim);
  write_partial(part, a.head_dim,
                a.partials + (index * a.rows * a.group + query_row) * attention_partial_floats(a.head_dim));
}
/// Stores the merged partial result of a query row, if the call has partials.
REDLINE_INLINE void keep_row(const AttentionArgs& a, const Partial& all, int64_t query_row) {
  if (a.partials != nullptr)
    return write_partial(all, a.head_dim, a.partials + query_row * attention_partial_floats(a.head_dim));
  write_row(all, a.head_dim, a.y + query_row / a.group * a.y_stride + query_row % a.group * a.head_dim,
            sink_of(a.sinks, a.group, query_row));
}

/// The positions [begin, end) that a query row attends to, unless a mask hides some.
struct Span {
  int64_t begin, end;
};
REDLINE_INLINE int64_t position_of(const AttentionArgs& a, int64_t query_row) {
  return a.first_position + query_row / a.group;
}
REDLINE_INLINE Span visible_in_all(const AttentionArgs& a, int64_t query_row) {
  const int64_t position = position_of(a, query_row);
  int64_t begin = a.window > 0 ? max_i64(0, position + 1 - a.window) : 0;
  if (a.chunk > 0) begin = max_i64(begin, position / a.chunk * a.chunk);
  return {begin, a.is_causal ? position + 1 : a.kv_length};
}
/// Returns visible_in_all() within the positions of the call.
REDLINE_INLINE Span visible(const AttentionArgs& a, int64_t query_row) {
  const Span all = visible_in_all(a, query_row);
  return {max_i64(all.begin, a.kv_begin), min_i64(all.end, a.kv_end)};
}

/// Returns the ALiBi slope of a query row; 0 without slopes.
REDLINE_INLINE float slope_of(const AttentionArgs& a, int64_t query_row) {
  return a.slopes == nullptr ? 0.0f : a.slopes[query_row % a.group];
}
/// Sets bits[i] to the mask of the query row for the positions of page first_page + i.
inline void mask_bits_of(const AttentionMaskView& mask, int64_t row, int64_t first_page, int64_t pages,
                         uint32_t* bits) {
  int32_t low = mask.ranges[2 * row];
  const int32_t end = mask.ranges[2 * row + 1];
  for (int32_t high = end; low < high;) {  // the first entry that is not before first_page
    const int32_t middle = low + (high - low) / 2;
    if (mask.blocks[middle] < first_page) low = middle + 1;
    else high = middle;
  }
  for (int64_t i = 0; i < pages; ++i) bits[i] = 0;
  for (; low < end && mask.blocks[low] < first_page + pages; ++low)
    bits[mask.blocks[low] - first_page] = mask.bits == nullptr ? ~0u : static_cast<uint32_t>(mask.bits[low]);
}

}  // namespace redline::REDLINE_ISA_NS
