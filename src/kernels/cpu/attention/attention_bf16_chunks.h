// Softmax attention over bfloat16 KV pages by bfloat16 dot products, for text: queries, keys, values and weights have 8
// bits of mantissa, sums are float32.
//
// As in attention.inc, chunks of kKvChunk positions are computed one by one, with the maximum of each, and folded in
// order: the bits of a query row depend neither on the other rows of the call nor on where the positions are split.
// attention_bf16_tiles.h is faster for the thousands of query rows of an image, and its bits depend on splits.
//
// Products are transposed: a vector lane is a query row, so that maxima and sums of weights cross no lanes, and two
// elements of a key or value are broadcast from where kv_append put them. Up to 32 query rows share a broadcast;
// decoding takes 8 lanes, which read a cache from memory as fast as it comes. Each lane adds in the same order, however
// many there are.
//
// Error beyond that of attention.inc: scale q is rounded to bfloat16, which changes scores by up to 2^-9 scale |q| |k|;
// a weight is off by 2^-8 of itself from rounding and 7.5e-5 from the polynomial, but the divisor is the sum of the
// same weights. Weights below 2^-126 of the largest of a chunk count as zero, and vdpbf16ps takes subnormal numbers for
// zero. A NaN or +inf score makes its query row NaN; -inf has zero weight. Masked positions do not affect the result,
// whatever they hold.
#pragma once

#include "kernels/cpu/attention/attention_page.h"
#include "kernels/cpu/attention/attention_soft_cap.h"
#include "kernels/cpu/simd_row_panel.h"

namespace redline::REDLINE_ISA_NS {
namespace bf16_chunks {

constexpr int64_t kPage = kKvPageTokens, kBlock = kKvBlockTokens, kChunkPages = kKvChunk / kPage;
constexpr int64_t kPagePairs = kPage / 2, kLineBytes = 64;
constexpr int kMaxLanes = 32, kFewLanes = 8;
static_assert(kPage * sizeof(BF16) == kLineBytes, "a cache line holds the values of one element of head_dim of a page");

/// One float32 sum for each of `lanes` query rows. Words holds two bfloat16 for each of them.
template <int lanes>
struct Sums {
  VecF32 v[lanes / kWidth];
};
template <int lanes>
struct Words {
  VecI32 v[lanes / kWidth];
};
#if defined(__AVX512F__)
template <>
struct Sums<kFewLanes> {
  __m256 v;
};
template <>
struct Words<kFewLanes> {
  __m256i v;
};
#endif

template <int lanes>
REDLINE_INLINE void set_zero(Sums<lanes>& sums) {
  if constexpr (lanes < kWidth) sums = Sums<lanes>{};
  else unroll<lanes / kWidth>([&](auto i) REDLINE_LAMBDA { sums.v[i] = zero_f32(); });
}
template <int lanes>
REDLINE_INLINE void load_lanes(Sums<lanes>& sums, const float* p) {
  if constexpr (lanes < kWidth) __builtin_memcpy(&sums.v, p, sizeof(sums.v));
  else unroll<lanes / kWidth>([&](auto i) REDLINE_LAMBDA { sums.v[i] = load(p + i * kWidth, Full{}); });
}
template <int lanes>
REDLINE_INLINE void load_lanes(Words<lanes>& words, const int32_t* p) {
  if constexpr (lanes < kWidth) __builtin_memcpy(&words.v, p, sizeof(words.v));
  else unroll<lanes / kWidth>([&](auto i) REDLINE_LAMBDA { words.v[i] = load_i32(p + i * kWidth); });
}
template <int lanes>
REDLINE_INLINE void store_lanes(float* p, const Sums<lanes>& sums) {
  if constexpr (lanes < kWidth) __builtin_memcpy(p, &sums.v, sizeof(sums.v));
  else unroll<lanes / kWidth>([&](auto i) REDLINE_LAMBDA { store(p + i * kWidth, sums.v[i], Full{}); });
}
/// Adds pair[0] words[0] + pair[1] words[1] to sums, for two bfloat16 at `pair`.
template <int lanes>
REDLINE_INLINE void add_products(Sums<lanes>& sums, const char* pair, const Words<lanes>& words) {
  int32_t both;
  __builtin_memcpy(&both, pair, sizeof(both));
#if defined(__AVX512F__)
  if constexpr (lanes < kWidth) {
    const __m256i x = _mm256_set1_epi32(both);
#if defined(__AVX512BF16__)
    sums.v = _mm256_dpbf16_ps(sums.v, (__m256bh)x, (__m256bh)words.v);
#else
    const __m256i upper = _mm256_set1_epi32(static_cast<int32_t>(0xffff0000u));
    const auto low = [](__m256i a) { return _mm256_castsi256_ps(_mm256_slli_epi32(a, 16)); };
    const auto high = [&](__m256i a) { return _mm256_castsi256_ps(_mm256_and_si256(a, upper)); };
    sums.v = _mm256_fmadd_ps(low(x), low(words.v), sums.v);
    sums.v = _mm256_fmadd_ps(high(x), high(words.v), sums.v);
#endif
    return;
  } else
#endif
  {
    const VecI32 x = set1_i32(both);
    unroll<lanes / kWidth>([&](auto i) REDLINE_LAMBDA { sums.v[i] = dot2_bf16(sums.v[i], x, words.v[i]); });
  }
}

/// Number of sums of one register tile: few enough to stay in registers, and enough to hide the latency of a product.
template <int lanes>
constexpr int kTileSums = lanes > kWidth ? 8 : 16;

/// Computes scores = keys . queries for 16 positions of a page. `width`: head_dim in whole pairs; `whole`: it is a
/// whole number of steps. Meanwhile prefetches cache lines from each of the two addresses in `soon` on.
template <int lanes, bool whole>
[[gnu::noinline]] void score_block(const int32_t* q, const BF16* keys, int64_t width, float* scores,
                                   const char* const* soon) {
  constexpr int kPositions = kTileSums<lanes>;
  const char *first = soon[0], *second = soon[1];
  for (int64_t at = 0; at < kBlock; at += kPositions) {
    Sums<lanes> sum[kPositions];
    unroll<kPositions>([&](auto r) REDLINE_LAMBDA { set_zero(sum[r]); });
    const int32_t* right = q;
    for (int64_t step = 0; step < width; step += kKeyStep) {
      const int64_t bytes = whole ? kLineBytes : 2 * min_i64(kKeyStep, width - step);
      const char* left = reinterpret_cast<const char*>(keys + step * kBlock) + at * bytes;
      for (int64_t i = 0; i < bytes; i += 4, left += 4, right += lanes) {
        Words<lanes> words;
        load_lanes(words, right);
        if (at == 0) {
          __builtin_prefetch(first, 0, 2);
          __builtin_prefetch(second, 0, 2);
          first += kLineBytes, second += kLineBytes;
        }
        unroll<kPositions>([&](auto r) REDLINE_LAMBDA { add_products(sum[r], left + r * bytes, words); });
      }
    }
    unroll<kPositions>([&](auto r) REDLINE_LAMBDA { store_lanes(scores + (at + r) * lanes, sum[r]); });
  }
}

/// The pages of a chunk whose values are summed, and for each page an address from which data is prefetched meanwhile.
struct ValuePages {
  int64_t position[kChunkPages];
  const BF16* values[kChunkPages];
  const char* soon[kChunkPages];
  int64_t end = 0;  ///< number of pages
};

/// Adds sums[d] += weights . values for `dims` elements of head_dim from d on, over pages [begin, end).
template <int lanes, int dims>
REDLINE_INLINE void add_values_at(const ValuePages& pages, int64_t begin, int64_t end, const int32_t* weights,
                                  int64_t d, float* sums) {
  Sums<lanes> sum[dims];
  unroll<dims>([&](auto r) REDLINE_LAMBDA { load_lanes(sum[r], sums + (d + r) * lanes); });
  for (int64_t page = begin; page < end; ++page) {
    const char* left = reinterpret_cast<const char*>(pages.values[page]) + d * kLineBytes;
    const char* soon = pages.soon[page] + d * kLineBytes;
    const int32_t* right = weights + page * kPagePairs * lanes;
    unroll<dims>([&](auto r) REDLINE_LAMBDA { __builtin_prefetch(soon + r * kLineBytes, 0, 2); });
    for (int64_t pair = 0; pair < kPagePairs; ++pair, left += 4, right += lanes) {
      Words<lanes> words;
      load_lanes(words, right);
      unroll<dims>([&](auto r) REDLINE_LAMBDA { add_products(sum[r], left + r * kLineBytes, words); });
    }
  }
  unroll<dims>([&](auto r) REDLINE_LAMBDA { store_lanes(sums + (d + r) * lanes, sum[r]); });
}
template <int lanes>
[[gnu::noinline]] void add_values(const ValuePages& pages, const int32_t* weights, int64_t head_dim, float* sums) {
  // With few lanes a page is read whole before the next one, which is the order of memory.
  const int64_t at_once = lanes == kMaxLanes ? kChunkPages : 1;
  constexpr int dims = kTileSums<lanes>;
  for (int64_t page = 0; page < pages.end; page += at_once) {
    const int64_t end = min_i64(page + at_once, pages.end);
    int64_t d = 0;
    for (; d + dims <= head_dim; d += dims) add_values_at<lanes, dims>(pages, page, end, weights, d, sums);
    for (; d < head_dim; ++d) add_values_at<lanes, 1>(pages, page, end, weights, d, sums);
  }
}

/// Returns 2^x for x <= 0, -inf or NaN, to 7.5e-5 and rounded to bfloat16 in the upper half; the lower half is
/// undefined.
REDLINE_INLINE VecI32 weight_bits(VecF32 x) {
#if defined(__AVX512F__)
  // Degree 3 on [0, 1); the constant includes half a unit in the last place of bfloat16 in [1, 2), for rounding. The
  // exponent is added as an integer, which takes no slot of a multiplication. -127 gives the upper half of zero.
  x = max(set1(-127.0f), x);  // this order keeps a NaN
  const VecF32 floor = {_mm512_roundscale_ps(x.v, 0x09)}, r = x - floor;
  const VecF32 p =
      fma(fma(fma(r, set1(0x1.3f9694p-4f), set1(0x1.cefc5cp-3f)), r, set1(0x1.64444ap-1f)), r, set1(0x1.00fb18p0f));
  return bits_i32(p) + shl<23>(to_i32(floor));
#else
  return bits_i32(exp(x * set1(kLn2))) + set1_i32(0x8000);
#endif
}

/// Turns scores of positions [0, 2 * pairs) into weights 2^(score - top), two positions a word; sets the maxima and the
/// sums of weights of the query rows.
template <int lanes>
[[gnu::noinline]] void soften(const float* scores, int64_t pairs, int32_t* weights, float* top, float* total) {
  const VecI32 upper = set1_i32(static_cast<int32_t>(0xffff0000u));
  const VecF32 lowest = set1(-0x1.fffffep127f);  // where all are -inf, scores stay -inf
#if defined(__AVX512F__)
  if constexpr (lanes < kWidth) {  // a vector holds both positions of a pair
    VecF32 high[2] = {set1(-__builtin_inff()), set1(-__builtin_inff())};
    for (int64_t pair = 0; pair < pairs; pair += 2) {
      high[0] = max(load(scores + pair * kWidth, Full{}), high[0]);
      high[1] = max(load(scores + (pair + 1) * kWidth, Full{}), high[1]);
    }
    high[0] = max(high[0], high[1]);
    high[0] = max(high[0], VecF32{_mm512_shuffle_f32x4(high[0].v, high[0].v, 0x4e)});
    store(top, high[0], Tail{lanes});
    const VecF32 from = max(lowest, high[0]);
    __m256 sum = _mm256_setzero_ps();
    for (int64_t pair = 0; pair < pairs; ++pair) {
      const VecI32 bits = weight_bits(load(scores + pair * kWidth, Full{}) - from) & upper;
      const __m256i first = _mm512_castsi512_si256(bits.v), second = _mm512_extracti32x8_epi32(bits.v, 1);
      const __m256i word = _mm256_or_si256(_mm256_srli_epi32(first, 16), second);
      __builtin_memcpy(weights + pair * lanes, &word, sizeof(word));
      sum = _mm256_add_ps(sum, _mm256_add_ps(_mm256_castsi256_ps(first), _mm256_castsi256_ps(second)));
    }
    __builtin_memcpy(total, &sum, sizeof(sum));
    return;
  } else
#endif
  {
    for (int64_t i = 0; i < lanes; i += kWidth) {
      VecF32 high[2] = {set1(-__builtin_inff()), set1(-__builtin_inff())};
      for (int64_t pair = 0; pair < pairs; ++pair) {
        high[0] = max(load(scores + 2 * pair * lanes + i, Full{}), high[0]);
        high[1] = max(load(scores + (2 * pair + 1) * lanes + i, Full{}), high[1]);
      }
      high[0] = max(high[0], high[1]);
      store(top + i, high[0], Full{});
      const VecF32 from = max(lowest, high[0]);
      VecF32 sum = zero_f32();
      for (int64_t pair = 0; pair < pairs; ++pair) {
        const VecI32 first = weight_bits(load(scores + 2 * pair * lanes + i, Full{}) - from);
        const VecI32 second = weight_bits(load(scores + (2 * pair + 1) * lanes + i, Full{}) - from) & upper;
        store(weights + pair * lanes + i, shr<16>(first) | second, Full{});
        sum = sum + (bits_f32(first & upper) + bits_f32(second));
      }
      store(total + i, sum, Full{});
    }
  }
}

/// The scratch of one call, sized for its head_dim.
struct Buffers {
  int32_t* q;        ///< [pairs of head_dim][lanes], scaled by log2(e) scale
  float* scores;     ///< [kKvChunk][lanes]
  int32_t* weights;  ///< [kKvChunk / 2][lanes]
  float* sums;       ///< [head_dim][lanes]; lone_sums has them for one query row at a time
  float* lone_sums;
  float* part;    ///< [lanes][width], sums of the current chunk
  float* folded;  ///< [lanes][width], sums of all chunks so far
  BF16* values;   ///< copies of pages that not all query rows see whole
  /// With a mask: [lanes][kChunkPages], the visible positions of each page of the chunk.
  uint32_t* page_bits;
  int64_t width;  ///< head_dim rounded up to a multiple of 16
};
/// Maximum number of page copies: rows on both sides of the border of an attention chunk have no page in common.
constexpr int64_t kMaxCopies = kChunkPages;

/// The positions that query rows attend to, relative to a chunk.
struct LaneSpans {
  alignas(64) int32_t begin[kMaxLanes], end[kMaxLanes];
};

/// A group of up to `lanes` query rows.
template <int lanes>
struct Rows {
  const AttentionArgs& a;
  const Buffers& b;
  int64_t first, count;
  Span seen[lanes] = {};     ///< lanes beyond `count` are copies of the last query row
  Span some = {}, all = {};  ///< positions that some query row attends to; positions that all attend to

  const BF16* page(const void* base, int64_t position) const {
    return static_cast<const BF16*>(base) + a.pages[position / kPage] * a.cache.page_stride;
  }

  void load_queries() const {
    alignas(64) BF16 words[kWidth * 2 * kWidth];
    const int64_t pairs = even(a.head_dim) / 2;
    const VecF32 scale = set1(a.scale * kLog2E);
    for (int64_t l = 0; l < lanes; l += kWidth) {
      for (int64_t p = 0; p < pairs; p += kWidth) {
        for (int64_t i = 0; i < kWidth; ++i) {
          BF16* to = words + i * 2 * kWidth;
          store(to, zero_f32(), Full{});
          store(to + kWidth, zero_f32(), Full{});
          if (l + i >= count) continue;
          const float* q = query_of(a, first + l + i) + 2 * p;
          for_lanes(min_i64(2 * kWidth, a.head_dim - 2 * p),
                    [&](int64_t d, auto tail) { store(to + d, load(q + d, tail) * scale, tail); });
        }
        VecF32 block[kWidth];
        for (int i = 0; i < kWidth; ++i) block[i] = bits_f32(load_i32(words + i * 2 * kWidth));
        transpose(block);
        for (int64_t i = 0; i < min_i64(kWidth, pairs - p); ++i) {
          auto* to = reinterpret_cast<float*>(b.q + (p + i) * lanes + l);
          if constexpr (lanes < kWidth) store(to, block[i], Tail{lanes});
          else store(to, block[i], Full{});
        }
      }
    }
  }

  LaneSpans spans_in(int64_t chunk) const {
    LaneSpans spans;
    const auto within = [&](int64_t position) {
      return static_cast<int32_t>(min_i64(kKvChunk, max_i64(0, position - chunk)));
    };
    for (int64_t l = 0; l < kMaxLanes; ++l) {
      const Span s = seen[l < lanes ? l : lanes - 1];
      spans.begin[l] = within(s.begin), spans.end[l] = within(s.end);
    }
    return spans;
  }
  /// Sets masked scores of 16 positions from `position` of the chunk on to -inf.
  static void hide(const LaneSpans& spans, int64_t position, float* scores) {
    // A vector is part of the query rows of one position, or all of two.
    constexpr int64_t kVecs = lanes < kWidth ? 1 : lanes / kWidth, kVecPositions = lanes < kWidth ? kWidth / lanes : 1;
    const VecI32 nothing = set1_i32(static_cast<int32_t>(0xff800000u)), ones = set1_i32(-1);
    for (int64_t v = 0; v < kVecs; ++v) {
      alignas(64) int32_t at[kWidth], from[kWidth], last[kWidth];
      for (int64_t i = 0; i < kWidth; ++i) {
        const int64_t l = (v * kWidth + i) % lanes;
        at[i] = static_cast<int32_t>(position + i / lanes);
        from[i] = spans.begin[l], last[i] = spans.end[l] - 1;
      }
      const VecI32 start = load_i32(at), begin = load_i32(from), end = load_i32(last);
      for (int64_t t = 0; t < kBlock; t += kVecPositions) {
        float* some_scores = scores + t * lanes + v * kWidth;
        const VecI32 p = start + set1_i32(static_cast<int32_t>(t));
        const VecI32 hidden = sar<31>(p - begin) | sar<31>(end - p);
        const VecI32 score = bits_i32(load(some_scores, Full{}));
        store(some_scores, bits_f32((hidden & nothing) | (score & (hidden ^ ones))), Full{});
      }
    }
  }

  bool is_masked() const { return a.mask.ranges != nullptr; }
  int64_t row_of(int64_t lane) const { return (first + min_i64(lane, count - 1)) / a.group; }
  /// Lists the pages of positions [begin, end) of a chunk, without those that a mask hides from all query rows.
  void list_pages(int64_t chunk, int64_t begin, int64_t end, ValuePages& pages) const {
    for (int64_t l = 0; is_masked() && l < lanes; ++l)
      mask_bits_of(a.mask, row_of(l), chunk / kPage, kChunkPages, b.page_bits + l * kChunkPages);
    for (int64_t at = begin / kPage * kPage; at < end; at += kPage) {
      bool is_seen = !is_masked();
      for (int64_t l = 0; !is_seen && l < count; ++l)
        is_seen = b.page_bits[l * kChunkPages + (at - chunk) / kPage] != 0;
      if (is_seen) pages.position[pages.end++] = at;
    }
  }
  /// Adds ALiBi to the scores of 16 positions from `at` of the chunk on, and hides those whose bit of the mask is not
  /// set.
  [[gnu::noinline]] void edit(int64_t chunk, int64_t at, float* scores) const {
    alignas(64) float slopes[lanes];
    alignas(64) int32_t distances[lanes];
    for (int64_t l = 0; l < lanes; ++l) {
      slopes[l] = slope_of(a, first + min_i64(l, count - 1)) * kLog2E;
      distances[l] = static_cast<int32_t>(chunk + at - position_of(a, first + min_i64(l, count - 1)));
    }
    for (int32_t t = 0; a.slopes != nullptr && t < kBlock; ++t)
      for (int64_t l = 0; l < lanes; ++l) scores[t * lanes + l] += slopes[l] * static_cast<float>(distances[l] + t);
    for (int64_t t = 0; is_masked() && t < kBlock; ++t)
      for (int64_t l = 0; l < lanes; ++l)
        if ((b.page_bits[l * kChunkPages + at / kPage] >> (at % kPage + t) & 1) == 0)
          scores[t * lanes + l] = -__builtin_inff();
  }

  /// Copies the values of a page, with zeros where a query row of the span does not attend. Returns true if any value
  /// is infinite or NaN.
  bool copy_values(const BF16* from, int64_t position, Span span, BF16* to) const {
    alignas(64) uint32_t mask[kPagePairs];
    for (int64_t pair = 0; pair < kPagePairs; ++pair) {
      const int64_t at = position + 2 * pair;
      mask[pair] = (at >= span.begin && at < span.end ? 0xffffu : 0u) |
                   (at + 1 >= span.begin && at + 1 < span.end ? 0xffff0000u : 0u);
    }
    // An exponent of all ones carries into the sign.
    const VecI32 exponent = set1_i32(0x7f807f80), unit = set1_i32(0x00800080);
    VecI32 found = zero_i32();
    for (int64_t d = 0; d < a.head_dim; ++d) {
      for (int64_t i = 0; i < kPagePairs; i += kWidth) {
        const VecI32 x = load_i32(from + d * kPage + 2 * i) & load_i32(mask + i);
        found = found | ((x & exponent) + unit);
        store(reinterpret_cast<int32_t*>(to + d * kPage + 2 * i), x, Full{});
      }
    }
    alignas(64) int32_t any[kWidth];
    store(any, found, Full{});
    uint32_t bits = 0;
    for (const int32_t x : any) bits |= static_cast<uint32_t>(x);
    return (bits & 0x80008000u) != 0;
  }
  /// Sets the values of the pages, as the query rows of `span` see them.
  bool set_values(Span span, ValuePages& pages) const {
    bool not_finite = false;
    BF16* copy = b.values;
    for (int64_t p = 0; p < pages.end; ++p) {
      const int64_t position = pages.position[p];
      pages.values[p] = page(a.cache.v, position);
      if (position >= all.begin && position + kPage <= all.end) continue;
      not_finite |= copy_values(pages.values[p], position, span, copy);
      pages.values[p] = copy;
      copy += a.head_dim * kPage;
    }
    return not_finite;
  }

  /// Computes partial results of one chunk, into b.part, top and total.
  void chunk_step(int64_t chunk, bool is_first, bool more, float* top, float* total) const {
    const int64_t begin = max_i64(some.begin, chunk), end = min_i64(some.end, chunk + kKvChunk);
    for (int64_t l = 0; l < lanes; ++l) top[l] = -__builtin_inff(), total[l] = 0;
    for (int64_t i = 0; i < count * b.width; i += kWidth) store(b.part + i, zero_f32(), Full{});
    if (begin >= end) return;
    const int64_t width = even(a.head_dim);
    ValuePages pages;
    list_pages(chunk, begin, end, pages);
    if (pages.end == 0) return;
    const LaneSpans spans = spans_in(chunk);
    for (int64_t p = 0; p < pages.end; ++p) {
      const int64_t position = pages.position[p];
      const BF16* keys = page(a.cache.k, position);
      for (int64_t half = 0; half < kPage; half += kBlock) {
        // The values of this page are next; the keys of the first chunk have not been prefetched.
        const auto* values = reinterpret_cast<const char*>(page(a.cache.v, position) + half * width);
        const auto* then = is_first && p + 1 < pages.end
                               ? reinterpret_cast<const char*>(page(a.cache.k, pages.position[p + 1]) + half * width)
                               : values;
        const char* soon[2] = {values, then};
        float* to = b.scores + (p * kPage + half) * lanes;
        if (width % kKeyStep == 0) score_block<lanes, true>(b.q, keys + half * width, width, to, soon);
        else score_block<lanes, false>(b.q, keys + half * width, width, to, soon);
        if (a.soft_cap > 0) cap_scores(to, kBlock * lanes, a.soft_cap * kLog2E);
        const int64_t at = position + half - chunk;
        if (a.slopes != nullptr || is_masked()) edit(chunk, at, to);
        if (position + half < all.begin || position + half + kBlock > all.end) hide(spans, at, to);
      }
      pages.soon[p] = reinterpret_cast<const char*>(page(a.cache.v, position));
      if (more && position + kKvChunk < some.end)
        pages.soon[p] = reinterpret_cast<const char*>(page(a.cache.k, position + kKvChunk));
    }
    int32_t* const weights = b.weights;
    soften<lanes>(b.scores, pages.end * kPagePairs, weights, top, total);
    const auto sum_into = [&](float* sums) {
      for (int64_t i = 0; i < b.width * lanes; i += kWidth) store(sums + i, zero_f32(), Full{});
      add_values<lanes>(pages, weights, a.head_dim, sums);
    };
    const bool not_finite = set_values(some, pages);
    sum_into(b.sums);
    // An infinite or NaN value times a weight of zero is NaN, so each query row uses only the positions that it attends
    // to.
    for (int64_t l = 0; not_finite && l < count; ++l) {
      set_values(seen[l], pages);
      sum_into(b.lone_sums);
      for (int64_t d = 0; d < a.head_dim; ++d) b.sums[d * lanes + l] = b.lone_sums[d * lanes + l];
    }
    for (int64_t l = 0; l < lanes; ++l) {
      top[l] = top[l] * kLn2;
      if (top[l] != -__builtin_inff() || total[l] != 0) continue;
      // Clears the sums, because zero times an infinite value is NaN.
      for (int64_t d = 0; d < a.head_dim; ++d) b.sums[d * lanes + l] = 0;
    }
    // Transposes [head_dim][lanes] to query rows.
    for (int64_t l = 0; l < count; l += kWidth) {
      for (int64_t d = 0; d < a.head_dim; d += kWidth) {
        VecF32 block[kWidth];
        for (int i = 0; i < kWidth; ++i) block[i] = load(b.sums + (d + i) * lanes + l, Full{});
        transpose(block);
        for (int64_t i = 0; i < min_i64(kWidth, count - l); ++i)
          store(b.part + (l + i) * b.width + d, block[i], Full{});
      }
    }
  }

  void run() {
    for (int64_t l = 0; l < lanes; ++l) seen[l] = visible(a, first + min_i64(l, count - 1));
    // Rows are in order of position.
    some = {seen[0].begin, seen[count - 1].end}, all = {seen[count - 1].begin, seen[0].end};
    load_queries();
    Partial result[lanes];
    for (int64_t l = 0; l < count; ++l) {
      result[l].sums = b.folded + l * b.width;
      clear(result[l], a.head_dim);
    }
    const int64_t begin = a.partials != nullptr ? a.kv_begin : some.begin / kKvChunk * kKvChunk;
    const int64_t end = a.partials != nullptr ? a.kv_end : some.end;
    for (int64_t chunk = begin; chunk < end; chunk += kKvChunk) {
      alignas(64) float top[lanes], total[lanes];
      chunk_step(chunk, chunk == begin, chunk + kKvChunk < end, top, total);
      for (int64_t l = 0; l < count; ++l) {
        keep_chunk(a, {b.part + l * b.width, top[l], total[l]}, (chunk - begin) / kKvChunk, first + l, result[l]);
      }
    }
    for (int64_t l = 0; l < count && merges(a); ++l) keep_row(a, result[l], first + l);
  }
};

}  // namespace bf16_chunks

/// Computes attention over bfloat16 pages.
inline void attention_by_bf16_chunks(const AttentionArgs& a) {
  using namespace bf16_chunks;
  char* free = static_cast<char*>(a.scratch);
  const int64_t width = round_up(a.head_dim, 16);
  Buffers b;
  b.width = width;
  b.q = take<int32_t>(free, width / 2 * kMaxLanes);
  b.scores = take<float>(free, kKvChunk * kMaxLanes);
  b.weights = take<int32_t>(free, kKvChunk / 2 * kMaxLanes);
  b.sums = take<float>(free, (width + 1) * kMaxLanes);
  b.lone_sums = take<float>(free, (width + 1) * kMaxLanes);
  b.part = take<float>(free, kMaxLanes * width);
  b.folded = take<float>(free, kMaxLanes * width);
  b.values = take<BF16>(free, kMaxCopies * kPage * width);
  b.page_bits = take<uint32_t>(free, kMaxLanes * kChunkPages);
  static_assert(kMaxLanes * (kKvChunk * 6 + kMaxHeadDim * 18) + kMaxCopies * kPage * kMaxHeadDim * 2 + 8192 <=
                kScratchBytes);
  const int64_t query_rows = a.rows * a.group;
  for (int64_t first = 0; first < query_rows;) {
    const int64_t count = min_i64(kMaxLanes, query_rows - first);
    if (count <= kFewLanes) Rows<kFewLanes>{a, b, first, count}.run();
    else if (count <= 2 * kFewLanes) Rows<2 * kFewLanes>{a, b, first, count}.run();
    else Rows<kMaxLanes>{a, b, first, count}.run();
    first += count;
  }
}

}  // namespace redline::REDLINE_ISA_NS
