// Attention by bfloat16 tile products for many query rows: q . k and weights . v of 32 query rows at a time.
//
// For each chunk of positions, keys and values are converted to bfloat16 tiles in scratch, once for all query rows of
// the call. Then for every 32 query rows: scores by tiles, 64 positions at a time, turned into weights while the tiles
// of the next 64 run; weighted values of the chunk by tiles; and the merge of the chunk's result into that of earlier
// chunks. Nothing is rescaled within a chunk: weights are 2^(score - reference), the reference being taken from the
// first scores of the query row. Floating point represents them as well as with the true maximum, unless that lies 64
// above; in this case the chunk is recomputed with the true maximum. Steps of 32 positions that are masked for all 32
// query rows are skipped: the causal half and what lies before a window.
//
// q and k are each split into two bfloat16 numbers, the second one being the rounding error of the first, and q k is
// the sum of three products: scores keep 16 bits, so that large ones are accurate too. This costs a fifth of the time
// (docs/history/performance-notes.md).
//
// Error beyond that of attention.inc: scores 2^-16 scale |q| |k|; weights and v are rounded to bfloat16, 2^-9 each (v
// is exact where the cache is bfloat16): docs/numerics.md. The bits of a query row do not depend on the other rows of
// the call. Positions masked for all rows of the call do not affect the result; a NaN or infinite v that is visible to
// one row of the call may affect another of the same 32.
#pragma once

#include "kernels/cpu/attention/attention_page.h"
#include "kernels/cpu/attention/attention_soft_cap.h"
#include "kernels/cpu/tiles.h"

namespace redline::REDLINE_ISA_NS {
namespace tiled {

constexpr int64_t kTileRows = 16, kTileBytes = 1024, kTileElements = kTileBytes / 2;
constexpr int64_t kStep = 32;      ///< reduction elements of one product
constexpr int64_t kPassRows = 32;  ///< query rows of one pass over a chunk
/// Positions scored at a time, and strides of scores and weights. The extra cache line keeps rows in different cache
/// sets.
constexpr int64_t kSpan = 64;
constexpr int64_t kScoreStride = kSpan + 16, kScores = kPassRows * kScoreStride;
constexpr int64_t kWeightStride = kKvChunk + 32;
/// Maximum sum of weights. A larger one means that the reference of a query row was far too low.
constexpr float kMaxWeight = 0x1p64f;

/// Stores two vectors, rounded to nearest even.
REDLINE_INLINE void store_bf16(BF16* p, VecF32 a, VecF32 b) {
#if defined(__AVX512BF16__)
  const __m512bh both = _mm512_cvtne2ps_pbh(b.v, a.v);
  __builtin_memcpy(p, &both, sizeof(both));
#else
  store(p, a, Full{});
  store(p + kWidth, b, Full{});
#endif
}

/// Stores two vectors rounded, and the rounding errors, themselves rounded, in `rest`: together 16 bits.
REDLINE_INLINE void store_bf16_twice(BF16* p, BF16* rest, VecF32 a, VecF32 b) {
  store_bf16(p, a, b);
  store_bf16(rest, a - load(p, Full{}), b - load(p + kWidth, Full{}));
}

/// Returns 2^x for x <= 0 to 7.5e-5, negligible compared with the rounding of the result to bfloat16; -inf gives 0, NaN
/// stays.
REDLINE_INLINE VecF32 exp2_weight(VecF32 x) {
#if defined(__AVX512F__)
  const VecF32 r = {_mm512_reduce_ps(x.v, 0x09)};  // x - floor(x), no exception; 0 for -inf
  VecF32 p = fma(r, set1(0x1.3f9694p-4f), set1(0x1.cefc5cp-3f));
  p = fma(p, r, set1(0x1.64444ap-1f));
  p = fma(p, r, set1(0x1.fff632p-1f));
  return {_mm512_scalef_ps(p.v, x.v)};  // p 2^floor(x)
#else
  return exp(x * set1(kLn2));
#endif
}

/// The scratch of one call, sized for its head_dim.
struct Buffers {
  BF16* keys;     ///< [16 tokens][step of head_dim] tiles
  BF16* values;   ///< [step of 32 tokens][16 of head_dim] tiles
  BF16* q;        ///< [query rows][head_dim rounded up to kStep], scaled by log2(e) scale
  float* scores;  ///< two of [kPassRows][kSpan]
  BF16* weights;  ///< [kPassRows][kKvChunk]
  float* totals;  ///< [kPassRows][kWidth]
  float* sums;    ///< sums of one chunk, [kPassRows][head_dim rounded up to 16]
  float* folded;  ///< sums over all chunks, [query rows][head_dim rounded up to 16]
  float* max;     ///< over all chunks, [query rows]
  float* total;
  Span* seen;  ///< [query rows]
};

/// Converts the pages of `span` in the chunk that begins at `chunk`, from a multiple of kSpan. Values at positions that
/// no query row attends to become zeros.
template <class Element>
void convert_chunk(const AttentionArgs& a, int64_t chunk, Span span, const Buffers& b) {
  const int64_t width = even(a.head_dim), pairs = width / 2, steps = round_up(pairs, kTileRows) / kTileRows,
                columns = round_up(a.head_dim, kTileRows) / kTileRows, rest = kKvChunk * steps * kStep;
  for (int64_t at = span.begin / kSpan * kSpan; at < span.end; at += kKvPageTokens) {
    const int64_t page = a.pages[at / kKvPageTokens] * a.cache.page_stride;
    const Element* k = static_cast<const Element*>(a.cache.k) + page;
    const Element* v = static_cast<const Element*>(a.cache.v) + page;
    for (int64_t block = 0; block < kKvPageTokens / kKvBlockTokens; ++block) {
      const Element* source = k + block * width * kKvBlockTokens;
      BF16* target = b.keys + ((at - chunk) / kKvBlockTokens + block) * steps * kTileElements;
      for (int64_t i = 0; i < pairs * kStep; i += 2 * kWidth)
        store_bf16_twice(target + i, target + i + rest, load(source + i, Full{}), load(source + i + kWidth, Full{}));
      for (int64_t i = pairs * kStep; i < steps * kTileElements; i += 2 * kWidth)
        store_bf16_twice(target + i, target + i + rest, zero_f32(), zero_f32());
    }
    BF16* target = b.values + (at - chunk) / kStep * columns * kTileElements;
    for (int64_t pair = 0; pair < kKvPageTokens / 2; ++pair) {
      const int64_t token = at + 2 * pair;
      int32_t bits[2] = {token >= span.begin && token < span.end ? -1 : 0,
                         token + 1 >= span.begin && token + 1 < span.end ? -1 : 0};
      float keep[2];
      __builtin_memcpy(keep, bits, sizeof(keep));
      const VecI32 mask = bits_i32(set_pair(keep));
      const Element* source = v + pair * 2 * width;
      for (int64_t column = 0; column < columns; ++column) {
        BF16* out = target + column * kTileElements + pair * kStep;
        const int64_t floats = min_i64(kStep, 2 * (a.head_dim - column * kTileRows));
        const Element* in = source + column * kStep;
        if (floats == kStep) {
#pragma GCC unroll 8
          for (int64_t i = 0; i < kStep; i += 2 * kWidth)
            store_bf16(out + i, bits_f32(bits_i32(load(in + i, Full{})) & mask),
                       bits_f32(bits_i32(load(in + i + kWidth, Full{})) & mask));
          continue;
        }
        for (int64_t i = 0; i < kStep; i += kWidth) {
          const Tail lanes = {static_cast<int>(max_i64(0, min_i64(kWidth, floats - i)))};
          store(out + i, bits_f32(bits_i32(load(in + i, lanes)) & mask), Full{});
        }
      }
    }
  }
}

/// Returns the maximum of scores [0, count).
REDLINE_INLINE float top_score(const float* row, int64_t count) {
  VecF32 high = load(row, Full{});
  for (int64_t i = kWidth; i < count; i += kWidth) high = max(load(row + i, Full{}), high);
  return reduce_max(high);
}
/// Turns scores [0, count), a multiple of kStep, into bfloat16 weights 2^(score - reference), and adds them up per
/// lane.
REDLINE_INLINE void weigh(const float* scores, int64_t count, float reference, BF16* weights, float* totals) {
  const VecF32 shift = set1(reference);
  VecF32 total[2] = {load(totals, Full{}), zero_f32()};
  for (int64_t i = 0; i < count; i += 2 * kWidth) {
    const VecF32 a = exp2_weight(load(scores + i, Full{}) - shift);
    const VecF32 b = exp2_weight(load(scores + i + kWidth, Full{}) - shift);
    total[0] = total[0] + a;
    total[1] = total[1] + b;
    store_bf16(weights + i, a, b);
  }
  store(totals, total[0] + total[1], Full{});
}

/// One pass: some query rows over one chunk of positions. `tall` in its functions: there are at most `tall` x 16 rows.
/// Passed by value to functions that are not inlined, so that members stay in registers.
template <class Unit>
struct Pass {
  Unit& unit;
  const AttentionArgs& a;
  const Buffers& b;
  int64_t call_row;          ///< index of the first query row in the call
  int64_t query_row, count;  ///< query rows of the buffers
  int64_t chunk;             ///< first position of the chunk
  Span span;                 ///< positions of the chunk that any row of the call attends to
  /// Positions of the chunk that are multiplied: from a multiple of kSpan to one of kStep, or none.
  int64_t low = 0, high = 0;
  int64_t steps = round_up(a.head_dim, kStep) / kStep, columns = round_up(a.head_dim, kTileRows) / kTileRows;

  int64_t wide() const { return columns * kTileRows; }

  /// Computes scores for positions [begin, end) of the chunk, multiples of kStep, at most kSpan.
  template <int tall>
  REDLINE_INLINE void score(int64_t begin, int64_t end, float* scores) const {
    const int64_t q_bytes = 2 * steps * kStep * 2, score_bytes = kScoreStride * 4, rest = kKvChunk * steps * kStep;
    const BF16* q = b.q + query_row * 2 * steps * kStep;
    const BF16* all_keys = b.keys;
    const int64_t num_steps = steps;
    Unit& tiles = unit;
    for (int64_t at = begin; at < end; at += kStep, scores += kStep) {
      const BF16* keys = all_keys + at / kKvBlockTokens * num_steps * kTileElements;
      tiles.template zero<0>();
      tiles.template zero<1>();
      if constexpr (tall == 2) tiles.template zero<2>(), tiles.template zero<3>();
      // q k + q' k + q k', where q' and k' are the rounding errors of q and k in bfloat16.
      const auto multiply = [&](const BF16* queries) {
        tiles.template load<4>(queries, q_bytes);
        tiles.template dot_bf16<0, 4, 6>();
        tiles.template dot_bf16<1, 4, 7>();
        if constexpr (tall == 2) {
          tiles.template load<5>(queries + kTileRows * 2 * num_steps * kStep, q_bytes);
          tiles.template dot_bf16<2, 5, 6>();
          tiles.template dot_bf16<3, 5, 7>();
        }
      };
      for (int64_t s = 0; s < num_steps; ++s) {
        tiles.template load<6>(keys + rest + s * kTileElements, 64);
        tiles.template load<7>(keys + rest + (num_steps + s) * kTileElements, 64);
        multiply(q + s * kStep);
        tiles.template load<6>(keys + s * kTileElements, 64);
        tiles.template load<7>(keys + (num_steps + s) * kTileElements, 64);
        multiply(q + (num_steps + s) * kStep);
        multiply(q + s * kStep);
      }
      tiles.template store<0>(scores, score_bytes);
      tiles.template store<1>(scores + kTileRows, score_bytes);
      if constexpr (tall == 2) {
        tiles.template store<2>(scores + kTileRows * kScoreStride, score_bytes);
        tiles.template store<3>(scores + kTileRows * kScoreStride + kTileRows, score_bytes);
      }
    }
  }

  /// Computes sums = weights . v over positions [low, high), for all of head_dim.
  template <int tall>
  REDLINE_INLINE void add_values() const {
    const int64_t weight_bytes = kWeightStride * 2, sum_bytes = wide() * 4, num_columns = columns;
    Unit& tiles = unit;
    for (int64_t column = 0; column < num_columns; column += 2) {
      const bool both = column + 1 < num_columns;
      tiles.template zero<0>();
      if constexpr (tall == 2) tiles.template zero<2>();
      if (both) {
        tiles.template zero<1>();
        if constexpr (tall == 2) tiles.template zero<3>();
      }
      for (int64_t at = low; at < high; at += kStep) {
        const BF16* values = b.values + (at / kStep * num_columns + column) * kTileElements;
        tiles.template load<4>(b.weights + at, weight_bytes);
        tiles.template load<6>(values, 64);
        tiles.template dot_bf16<0, 4, 6>();
        if constexpr (tall == 2) {
          tiles.template load<5>(b.weights + kTileRows * kWeightStride + at, weight_bytes);
          tiles.template dot_bf16<2, 5, 6>();
        }
        if (both) {
          tiles.template load<7>(values + kTileElements, 64);
          tiles.template dot_bf16<1, 4, 7>();
          if constexpr (tall == 2) tiles.template dot_bf16<3, 5, 7>();
        }
      }
      float* sums = b.sums + column * kTileRows;
      const int64_t down = kTileRows * num_columns * kTileRows;
      tiles.template store<0>(sums, sum_bytes);
      if constexpr (tall == 2) tiles.template store<2>(sums + down, sum_bytes);
      if (both) {
        tiles.template store<1>(sums + kTileRows, sum_bytes);
        if constexpr (tall == 2) tiles.template store<3>(sums + down + kTileRows, sum_bytes);
      }
    }
  }

  /// Computes the weights of the scores of positions [at, at + size) of the chunk. The reference of a row is its
  /// largest score in the first kStep positions with a visible one; with `exact` it is already set.
  REDLINE_INLINE void weigh_rows(float* scores, int64_t at, int64_t size, bool exact, float* reference) const {
    const float none = -__builtin_inff();
    const Span* seen = b.seen + query_row;
    for (int64_t l = 0; l < count; ++l) {
      float* row = scores + l * kScoreStride;
      if (a.soft_cap > 0) cap_scores(row, size, a.soft_cap * kLog2E);
      const int64_t begin = max_i64(0, seen[l].begin - chunk) - at, end = seen[l].end - chunk - at;
      for (int64_t i = 0; i < min_i64(begin, size); ++i) row[i] = none;
      for (int64_t i = max_i64(end, 0); i < size; ++i) row[i] = none;
      if (!exact && begin >= 0 && begin < size) {
        const float top = top_score(row + begin / kStep * kStep, kStep);
        if (top != none) reference[l] = top;
      }
    }
    for (int64_t l = 0; l < count; ++l)
      weigh(scores + l * kScoreStride, size, reference[l], b.weights + l * kWeightStride + at, b.totals + l * kWidth);
  }

  /// Computes weights and their sums. The products of the next kSpan positions are issued before the exponentials of
  /// these, so that both units work.
  template <int tall>
  REDLINE_INLINE void find_weights(bool exact, float* reference, float* total) const {
    for (int64_t l = 0; l < count; ++l) store(b.totals + l * kWidth, zero_f32(), Full{});
    score<tall>(low, min_i64(high, low + kSpan), b.scores);
    int64_t turn = 0;
    for (int64_t at = low; at < high; at += kSpan, turn ^= 1) {
      const int64_t next = at + kSpan;
      if (next < high) score<tall>(next, min_i64(high, next + kSpan), b.scores + (turn ^ 1) * kScores);
      weigh_rows(b.scores + turn * kScores, at, min_i64(kSpan, high - at), exact, reference);
    }
    for (int64_t l = 0; l < count; ++l) total[l] = reduce_add(load(b.totals + l * kWidth, Full{}));
  }

  /// Finds the true maximum of each query row, for the rare chunk whose first scores gave too low a reference.
  template <int tall>
  [[gnu::noinline]] static void find_exact_references(Pass p, float* reference) {
    const Buffers& b = p.b;
    const Span* seen = b.seen + p.query_row;
    for (int64_t l = 0; l < p.count; ++l) reference[l] = -__builtin_inff();
    for (int64_t at = p.low; at < p.high; at += kStep) {
      p.template score<tall>(at, at + kStep, b.scores);
      for (int64_t l = 0; l < p.count; ++l) {
        if (p.a.soft_cap > 0) cap_scores(b.scores + l * kScoreStride, kStep, p.a.soft_cap * kLog2E);
        for (int64_t i = max_i64(at, seen[l].begin - p.chunk); i < min_i64(at + kStep, seen[l].end - p.chunk); ++i)
          reference[l] = max_f32(b.scores[l * kScoreStride + i - at], reference[l]);
      }
    }
    for (int64_t l = 0; l < p.count; ++l) reference[l] = reference[l] == -__builtin_inff() ? 0.0f : reference[l];
  }

  /// Computes weights, with their sums in `total` and their references in `top`, then the weighted values.
  template <int tall>
  REDLINE_INLINE void attend(float* top, float* total) const {
    for (int64_t l = 0; l < count; ++l) top[l] = 0.0f;
    find_weights<tall>(false, top, total);
    bool good = true;
    for (int64_t l = 0; l < count; ++l) good = good && total[l] <= kMaxWeight;
    if (!good) {
      // Each row's own sum decides which of its two references is used, so that its bits do not depend on the other
      // rows.
      float exact[kPassRows];
      find_exact_references<tall>(*this, exact);
      for (int64_t l = 0; l < count; ++l) top[l] = total[l] <= kMaxWeight ? top[l] : exact[l];
      find_weights<tall>(true, top, total);
    }
    for (int64_t l = 0; l < count; ++l)
      if (total[l] == 0.0f) top[l] = -__builtin_inff();  // no visible position
    for (int64_t l = 0; l < count; ++l) top[l] *= kLn2;
    add_values<tall>();
  }

  /// Computes fold() of attention_page.h for the query rows of the pass, with the same bits; their exponentials are
  /// computed together.
  REDLINE_INLINE void fold(const float* top, const float* total) const {
    alignas(64) float old_scale[kPassRows] = {}, scale[kPassRows] = {};
    const float none = -__builtin_inff();
    for (int64_t l = 0; l < count; ++l) {
      const float old = b.max[query_row + l], highest = top[l] > old ? top[l] : old;
      old_scale[l] = old == none && b.total[query_row + l] == 0.0f ? none : old - highest;
      scale[l] = top[l] - highest;
    }
    for (int64_t l = 0; l < kPassRows; l += kWidth) {
      store(old_scale + l, exp(load(old_scale + l, Full{})), Full{});
      store(scale + l, exp(load(scale + l, Full{})), Full{});
    }
    for (int64_t l = 0; l < count; ++l) {
      if (top[l] == none && total[l] == 0.0f) continue;
      const int64_t i = query_row + l, width = wide();
      b.max[i] = top[l] > b.max[i] ? top[l] : b.max[i];
      b.total[i] = b.total[i] * old_scale[l] + total[l] * scale[l];
      float* into = b.folded + i * width;
      const float* part = b.sums + l * width;
      const VecF32 x = set1(old_scale[l]), y = set1(scale[l]);
      for (int64_t d = 0; d < width; d += kWidth)
        store(into + d, load(into + d, Full{}) * x + load(part + d, Full{}) * y, Full{});
    }
  }

  /// Stores partials for attention_merge.
  REDLINE_INLINE void write_partials(const float* top, const float* total) const {
    const int64_t width = wide(), floats = attention_partial_floats(a.head_dim);
    float* out = a.partials + ((chunk - a.kv_begin) / kKvChunk * a.rows * a.group + call_row) * floats;
    for (int64_t l = 0; l < count; ++l, out += floats) {
      for (int64_t d = 0; d < width && low < high; d += kWidth)
        store(out + d, load(b.sums + l * width + d, Full{}), Full{});
      store_tail({out, top[l], total[l]}, a.head_dim);
    }
  }
};

template <int tall, class Unit>
void run_pass(Pass<Unit> p) {
  const Span* seen = p.b.seen + p.query_row;
  const int64_t begin = max_i64(p.span.begin, seen[0].begin) - p.chunk,
                end = min_i64(p.span.end, seen[p.count - 1].end) - p.chunk;
  if (begin >= end && merges(p.a)) return;
  float top[kPassRows], total[kPassRows];
  if (begin >= end) {
    for (int64_t l = 0; l < p.count; ++l) top[l] = -__builtin_inff(), total[l] = 0.0f;
  } else {
    // Start at a multiple of kSpan, so that the order in which weights are added does not depend on the first row.
    p.low = begin / kSpan * kSpan, p.high = round_up(end, kStep);
    p.template attend<tall>(top, total);
  }
  if (merges(p.a)) p.fold(top, total);
  else p.write_partials(top, total);
}

}  // namespace tiled

template <class Element, class Unit>
void attention_by_tiles(Unit& unit, const AttentionArgs& a) {
  using namespace tiled;
  const int64_t deep = round_up(a.head_dim, kStep), wide = round_up(a.head_dim, kTileRows);
  char* free = static_cast<char*>(a.scratch);
  Buffers b;
  b.keys = take<BF16>(free, 2 * kKvChunk * deep);
  b.values = take<BF16>(free, kKvChunk * wide);
  b.scores = take<float>(free, 2 * kScores);
  b.weights = take<BF16>(free, kPassRows * kWeightStride);
  b.totals = take<float>(free, kPassRows * kWidth);
  b.sums = take<float>(free, kPassRows * wide);
  const int64_t left = kScratchBytes - (free - static_cast<char*>(a.scratch)) - 256;
  const int64_t per_query_row = 2 * deep * 2 + wide * 4 + 8 + static_cast<int64_t>(sizeof(Span));
  const int64_t most = left / per_query_row / kPassRows * kPassRows, num_query_rows = a.rows * a.group;
  b.q = take<BF16>(free, most * 2 * deep);
  b.folded = take<float>(free, most * wide);
  b.max = take<float>(free, most);
  b.total = take<float>(free, most);
  b.seen = take<Span>(free, most);
  for (int64_t first = 0; first < num_query_rows; first += most) {
    const int64_t query_rows = min_i64(most, num_query_rows - first);
    // Rows are in order of position: the first query row has the earliest visible position, the last one the latest.
    const Span span = {max_i64(a.kv_begin, visible(a, first).begin),
                       min_i64(a.kv_end, visible(a, first + query_rows - 1).end)};
    for (int64_t l = 0; l < round_up(query_rows, kPassRows); ++l) {
      BF16* out = b.q + l * 2 * deep;
      for (int64_t d = 0; d < 2 * deep; d += kWidth) store(out + d, zero_f32(), Full{});
      if (l >= query_rows) continue;
      const float* q = query_of(a, first + l);
      const VecF32 scale = set1(a.scale * kLog2E);
      for_lanes(a.head_dim, [&](int64_t d, auto lanes) {
        const VecF32 x = load(q + d, lanes) * scale;
        store(out + d, x, Full{});
        store(out + deep + d, x - load(out + d, Full{}), Full{});
      });
      b.seen[l] = visible(a, first + l);
      b.max[l] = -__builtin_inff();
      b.total[l] = 0.0f;
      for (int64_t d = 0; d < wide && merges(a); d += kWidth) store(b.folded + l * wide + d, zero_f32(), Full{});
    }
    const int64_t begin = a.partials != nullptr ? a.kv_begin : span.begin / kKvChunk * kKvChunk;
    const int64_t end = a.partials != nullptr ? a.kv_end : span.end;
    for (int64_t chunk = begin; chunk < end; chunk += kKvChunk) {
      const Span here = {max_i64(span.begin, chunk), min_i64(span.end, chunk + kKvChunk)};
      convert_chunk<Element>(a, chunk, here, b);
      for (int64_t l = 0; l < query_rows; l += kPassRows) {
        const int64_t count = min_i64(kPassRows, query_rows - l);
        const Pass<Unit> pass = {.unit = unit,
                                 .a = a,
                                 .b = b,
                                 .call_row = first + l,
                                 .query_row = l,
                                 .count = count,
                                 .chunk = chunk,
                                 .span = here};
        if (count > kTileRows) run_pass<2>(pass);
        else run_pass<1>(pass);
      }
    }
    for (int64_t l = 0; l < query_rows && merges(a); ++l)
      keep_row(a, {b.folded + l * wide, b.max[l], b.total[l]}, first + l);
  }
}

}  // namespace redline::REDLINE_ISA_NS
