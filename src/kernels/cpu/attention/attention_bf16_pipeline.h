// Inner loops of attention_bf16_tiles.h: the products of a pass, interleaved with vector work. This comment describes
// tiles; attention_dots.h has the products without them.
//
// After each tile product, some scores of an earlier block are turned into weights. The core overlaps both: during one
// product the vector unit can issue 32 additions but only 16 multiplications (docs/history/performance-notes.md).
// Values of the current job must stay in registers: tile instructions clobber memory, so an object whose address is
// taken is spilled. Arrays over 32 query rows have these as the inner dimension, so that a tile of 16 query rows is 16
// rows of 64 bytes, 128 apart.
#pragma once

#include "kernels/cpu/attention/attention_page.h"
#include "kernels/cpu/tiles.h"

namespace redline::REDLINE_ISA_NS {
namespace bf16_tiled {

constexpr int64_t kTile = 16, kTileElements = 512;
constexpr int64_t kStep = 32;                             ///< reduction elements of one product; positions of a block
constexpr int64_t kQueryRows = 32, kQueryRowBytes = 128;  ///< query rows of a pass; bytes of a row of them
constexpr int64_t kBlocks = kKvChunk / kStep;
constexpr int64_t kAhead = 1;                    ///< blocks of the next pass that may be scored early
constexpr int64_t kSlots = kAhead + 1;           ///< blocks of scores that are not yet weights
constexpr int64_t kScores = kStep * kQueryRows;  ///< size of a block: [32 positions][query rows]
/// Size of a block, a word per two positions: [16 pairs][query rows].
constexpr int64_t kWeights = kStep / 2 * kQueryRows;
constexpr int64_t kWeightSlots = kBlocks + kAhead;
constexpr int64_t kQueries = kStep / 2 * kQueryRows * 2;  ///< a step of head_dim: [16 pairs][query rows][2]
constexpr int64_t kColumn = kTile * kQueryRows;           ///< sums of a tile of head_dim: [16][query rows]
constexpr int64_t kJobPairs = kTile / 2;
static_assert(kStep == kKvPageTokens);

/// Unit of scores, which are exponents of 2. Where Weighing::Quick computes with them they are scaled by 2^-13: a float
/// near 2 then resolves exponents in steps of 2^-9.
#if defined(__AVX512FP16__)
constexpr float kScoreUnit = 0x1p13f;
#else
constexpr float kScoreUnit = 1.0f;
#endif
/// Headroom of weights in powers of two: a score equal to the reference of its query row has weight 2^-32.
constexpr float kHeadroom = 32.0f;
/// Exponent of the gain of Weighing::Quick: in the middle of its error range it computes 2^(x + kQuickGain) for 2^x.
/// Exact weights use the same gain.
constexpr float kQuickGain = -0x1.32p-9f;

/// Computes 2^x to 7.5e-5. The upper half of the result is the rounded bfloat16, the lower half is undefined. -inf
/// gives 0.
struct Exponential {
#if defined(__AVX512F__)
  // Degree 3 on [0, 1); c0 includes half a unit in the last place of bfloat16 in [1, 2), for rounding.
  VecF32 c3 = set1(0x1.3f9694p-4f), c2 = set1(0x1.cefc5cp-3f), c1 = set1(0x1.64444ap-1f), c0 = set1(0x1.00fb18p0f);
  REDLINE_INLINE VecI32 bits(VecF32 x) const {
    const VecF32 r = {_mm512_reduce_ps(x.v, 0x09)};  // x - floor(x), no exception; 0 for infinities
    const VecF32 p = fma(fma(fma(r, c3, c2), r, c1), r, c0);
    return bits_i32({_mm512_scalef_ps(p.v, x.v)});  // p 2^floor(x)
  }
#else
  REDLINE_INLINE VecI32 bits(VecF32 x) const { return bits_i32(exp(x * set1(kLn2))) + set1_i32(0x8000); }
#endif
};

/// The reference scores of 32 query rows, relative to which weights are computed.
struct Reference {
  float quick[kQueryRows];  ///< score + quick = 2 + (exponent - reference + 95) 2^-13
  float exact[kQueryRows];  ///< exponent + exact = log2(weight), exponent = score * kScoreUnit
  float total[kQueryRows];  ///< sums of weights, if no column of ones adds them
  bool has_no_score;        ///< some query row has not seen a score yet
};

/// Scores of 16 positions of a pass that are to be turned into weights.
struct Job {
  const float* scores;  ///< [16][kQueryRows]
  int32_t* weights;     ///< [8][kQueryRows]
  Reference* reference;
};
struct JobQueue {
  Job ring[2 * kSlots];
  int64_t put = 0, taken = 0;

  void add(const Job& job) { ring[put++ % (2 * kSlots)] = job; }
  bool empty() const { return put == taken; }
};

/// Stores the lanes whose bit is set in `lanes`.
REDLINE_INLINE void store_lanes(int32_t* to, VecI32 from, uint32_t lanes) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_epi32(to, static_cast<__mmask16>(lanes), from.v);
#else
  alignas(64) int32_t all[kWidth];
  store(all, from, Full{});
  for (int64_t l = 0; l < kWidth; ++l)
    if (lanes >> l & 1) to[l] = all[l];
#endif
}

/// Computes weights of a job and their totals, in float32, for the query rows in the bit mask.
[[gnu::noinline]] inline void weigh_exactly(Job job, uint32_t query_rows) {
  const Exponential exponential;
  const VecI32 upper = set1_i32(static_cast<int32_t>(0xffff0000u));
  for (int64_t i = 0; i < kQueryRows; i += kWidth) {
    const VecF32 start = load(job.reference->exact + i, Full{});
    VecF32 total = load(job.reference->total + i, Full{});
    for (int64_t pair = 0; pair < kJobPairs; ++pair) {
      const float* scores = job.scores + 2 * pair * kQueryRows + i;
      const VecF32 first = load(scores, Full{}) * set1(kScoreUnit) + start;
      const VecF32 second = load(scores + kQueryRows, Full{}) * set1(kScoreUnit) + start;
      const VecI32 a = exponential.bits(first), b = exponential.bits(second) & upper;
      store_lanes(job.weights + pair * kQueryRows + i, shr<16>(a) | b, query_rows >> i);
      total = total + (bits_f32(a & upper) + bits_f32(b));
    }
    store_lanes(reinterpret_cast<int32_t*>(job.reference->total + i), bits_i32(total), query_rows >> i);
  }
}

/// The current job, kept in registers, or none. With `summed` the weights are added up.
template <bool summed>
struct Weighing {
  Job job = {};
  const float* scores = nullptr;
  int32_t* weights = nullptr;
  int64_t left = 0;  ///< remaining pairs of positions

#if defined(__AVX512FP16__)
  /// Computes 2^score of two positions at once, as 16-bit integers: 7 bits of exponent and 9 bits of fraction f, minus
  /// a polynomial of degree 2 in float16 for 1 + f - 2^f; the lowest two bits are rounded off. Weights have an error of
  /// at most 5.9e-3, 2.1e-3 rms; rounding to bfloat16 alone has 3.9e-3 and 1.7e-3.
  struct Quick {
    __m512h c2, c1, c0;
    __m512i fraction, one, swap;
    __m512 start[kQueryRows / kWidth];
    __m512i seen[kQueryRows / kWidth];
    __m512 total[kQueryRows / kWidth];
    __m512i unity;
    Quick()
        : c2(_mm512_set1_ph(static_cast<_Float16>(-11011.7f))), c1(_mm512_set1_ph(static_cast<_Float16>(1.6881769f))),
          c0(_mm512_set1_ph(static_cast<_Float16>(-6.20752913e-05f))), fraction(_mm512_set1_epi16(0x1ff)),
          one(_mm512_set1_epi16(0x400)), swap(_mm512_set4_epi32(0x0d0c0f0e, 0x09080b0a, 0x05040706, 0x01000302)),
          unity(_mm512_set1_epi16(0x3f80)) {
      asm volatile("" : "+v"(c2), "+v"(c1), "+v"(c0), "+v"(fraction), "+v"(one), "+v"(swap), "+v"(unity));
    }
    template <int i>
    REDLINE_INLINE void pair(const float* scores, int32_t* weights) {
      // The lower half of a float near 2 is the value; the upper half is 0x4000 if the score is in range.
      const __m512i a = _mm512_castps_si512(_mm512_add_ps(start[i], _mm512_loadu_ps(scores + i * kWidth)));
      const __m512i b = _mm512_castps_si512(_mm512_add_ps(start[i], _mm512_loadu_ps(scores + kQueryRows + i * kWidth)));
      seen[i] = _mm512_ternarylogic_epi32(seen[i], a, b, 0xfe);
      const __m512i x = _mm512_mask_shuffle_epi8(a, 0xccccccccccccccccull, b, swap);
      const __m512h t = _mm512_castsi512_ph(_mm512_ternarylogic_epi32(x, fraction, one, 0xea));  // 2^-14 (1 + f / 2)
      const __m512h d = _mm512_fmadd_ph(_mm512_fmadd_ph(t, c2, c1), t, c0);
      const __m512i y = _mm512_srli_epi16(_mm512_subs_epu16(x, _mm512_castph_si512(d)), 2);
      _mm512_storeu_si512(weights + i * kWidth, y);
      if constexpr (summed) total[i] = _mm512_dpbf16_ps(total[i], (__m512bh)y, (__m512bh)unity);
    }
  };
  REDLINE_INLINE void begin(JobQueue& queue, Quick& quick) {
    if (queue.empty()) return;
    job = queue.ring[queue.taken++ % (2 * kSlots)];
    scores = job.scores, weights = job.weights, left = kJobPairs;
    for (int64_t i = 0; i < kQueryRows / kWidth; ++i) {
      quick.start[i] = _mm512_loadu_ps(job.reference->quick + i * kWidth);
      quick.seen[i] = _mm512_setzero_si512();
      if constexpr (summed) quick.total[i] = _mm512_loadu_ps(job.reference->total + i * kWidth);
    }
  }
  template <int pairs>
  REDLINE_INLINE void some(Quick& quick) {
#pragma GCC unroll 8
    for (int i = 0; i < pairs; ++i) {
      quick.template pair<0>(scores + 2 * i * kQueryRows, weights + i * kQueryRows);
      quick.template pair<1>(scores + 2 * i * kQueryRows, weights + i * kQueryRows);
    }
    scores += 2 * pairs * kQueryRows;
    weights += pairs * kQueryRows;
    left -= pairs;
  }
  REDLINE_INLINE void end(Quick& quick) {
    if (job.scores == nullptr) return;
    while (left > 0) some<1>(quick);
    const __m512i upper = _mm512_set1_epi32(static_cast<int32_t>(0xbfff0000u));
    const uint32_t far = _mm512_test_epi32_mask(quick.seen[0], upper) |
                         static_cast<uint32_t>(_mm512_test_epi32_mask(quick.seen[1], upper)) << kWidth;
    if (far != 0) [[unlikely]]
      weigh_exactly(job, far);
    for (int64_t i = 0; summed && i < kQueryRows / kWidth; ++i)
      _mm512_mask_storeu_ps(job.reference->total + i * kWidth, static_cast<__mmask16>(~far >> i * kWidth),
                            quick.total[i]);
    job.scores = nullptr;
  }
#else
  struct Quick {};
  void begin(JobQueue& queue, Quick&) {
    if (queue.empty()) return;
    job = queue.ring[queue.taken++ % (2 * kSlots)];
    left = kJobPairs;
  }
  template <int pairs>
  void some(Quick&) {
    left -= pairs;
  }
  void end(Quick&) {
    if (job.scores == nullptr) return;
    weigh_exactly(job, ~uint32_t{0});
    job.scores = nullptr;
  }
#endif
};

/// The addresses of the tiles of one chunk.
struct Chunk {
  int64_t first;                  ///< first position of the chunk
  const BF16* keys[2 * kBlocks];  ///< tiles of 16 positions each
  const BF16* values[kBlocks];    ///< tiles of 32 positions each
};

/// A pass of 32 query rows over blocks [begin, end) of a chunk.
struct Pass {
  const Chunk* chunk;
  int64_t query_row, count;  ///< query rows of the scratch
  int64_t begin, end;
  Span common_positions;  ///< positions that all query rows of the pass attend to
  int32_t* weights[kBlocks];
  int64_t last_job;
};

/// The products of passes with interleaved vector work. `pairs`: position pairs turned into weights after each product
/// of scores. With `summed` the weights are added up.
template <class Unit, int pairs, bool summed>
struct Pipeline {
  using Weighing = bf16_tiled::Weighing<summed>;
  using Quick = typename Weighing::Quick;
  Unit& unit;
  int64_t head_dim, steps, columns;  ///< steps, columns: head_dim in units of kStep and of kTile
  JobQueue queue = {};
  // Data of the next chunk, prefetched into L2 during this one.
  const char* wanted[2 * kBlocks] = {};
  int64_t piece_bytes = 0, pieces = 0, piece_at = 0, bytes_at_once = 0;

  void prefetch() {
    for (int64_t i = 0; i < bytes_at_once && pieces > 0; i += 64) {
      __builtin_prefetch(wanted[pieces - 1] + piece_at, 0, 2);
      piece_at += 64;
      if (piece_at >= piece_bytes) --pieces, piece_at = 0;
    }
  }
  /// Runs jobs until `count` jobs in total are done.
  void finish_jobs(int64_t count) {
    Quick quick;
    Weighing weighing;
    while (queue.taken < count) {
      weighing.begin(queue, quick);
      weighing.end(quick);
    }
  }

  /// Multiplies one reduction step: 2 x 16 query rows times tile x into tiles 0 and 1, times tile y into 2 and 3. After
  /// each product, `work` pairs of positions are turned into weights.
  template <bool with_x, bool with_y, int work>
  REDLINE_INLINE void round(const void* query_rows, const BF16* x, const BF16* y, Weighing& weighing, Quick& quick) {
    unit.template load<6>(query_rows, kQueryRowBytes);
    if constexpr (with_x) {
      unit.template load_once<4>(x, 64);
      unit.template dot_bf16<0, 4, 6>();
      weighing.template some<work>(quick);
    }
    unit.template load<7>(static_cast<const char*>(query_rows) + 64, kQueryRowBytes);
    if constexpr (with_x) {
      unit.template dot_bf16<1, 4, 7>();
      weighing.template some<work>(quick);
    }
    if constexpr (with_y) {
      unit.template load_once<5>(y, 64);
      unit.template dot_bf16<2, 5, 6>();
      weighing.template some<work>(quick);
      unit.template dot_bf16<3, 5, 7>();
      weighing.template some<work>(quick);
    }
  }
  template <int first>
  REDLINE_INLINE void zero_pair() {
    unit.template zero<first>();
    unit.template zero<first + 1>();
  }
  template <int first>
  REDLINE_INLINE void store_pair(float* to) {
    unit.template store<first>(to, kQueryRowBytes);
    unit.template store<first + 1>(to + kTile, kQueryRowBytes);
  }

  /// Multiplies reduction steps [begin, end) of scores, interleaved with one job.
  template <bool with_x, bool with_y>
  REDLINE_INLINE void score_steps(const BF16* q, const BF16* x, const BF16* y, int64_t begin, int64_t end,
                                  Quick& quick) {
    constexpr int work = with_x && with_y ? pairs : 2 * pairs;
    Weighing weighing;
    weighing.begin(queue, quick);
    int64_t s = begin;
    for (; s < end && weighing.left > 0; ++s)
      round<with_x, with_y, work>(q + s * kQueries, x + s * kTileElements, y + s * kTileElements, weighing, quick);
    for (; s < end; ++s)
      round<with_x, with_y, 0>(q + s * kQueries, x + s * kTileElements, y + s * kTileElements, weighing, quick);
    weighing.end(quick);
  }

  /// Computes scores of blocks [begin, end) of a pass. slot(b) returns the buffer of block b; stored(b, i, scores) is
  /// called after its i-th 16 positions are stored.
  template <class Slot, class Stored>
  REDLINE_INLINE void score_blocks(const BF16* q, const Chunk& chunk, int64_t begin, int64_t end, Slot&& slot,
                                   Stored&& stored) {
    if constexpr (Unit::kIsDots) score_by_dots(q, chunk, begin, end, slot, stored);
    else score_by_tiles(q, chunk, begin, end, slot, stored);
  }
  /// Computes scores with tiles. The second half of a block runs half a block later and starts in the middle of
  /// head_dim, so that two tiles are stored while two others accumulate: four stores in a row would stall the products.
  template <class Slot, class Stored>
  REDLINE_INLINE void score_by_tiles(const BF16* q, const Chunk& chunk, int64_t begin, int64_t end, Slot&& slot,
                                     Stored&& stored) {
    Quick quick;
    const int64_t half = steps / 2;
    float* scores = nullptr;
    for (int64_t b = begin; b < end; ++b) {
      const BF16 *x = chunk.keys[2 * b], *y = chunk.keys[2 * b + 1];
      zero_pair<0>();
      if (b == begin) {
        score_steps<true, false>(q, x, x, 0, half, quick);
      } else {
        score_steps<true, true>(q, x, chunk.keys[2 * b - 1], 0, half, quick);
        store_pair<2>(scores + kScores / 2);
        stored(b - 1, 1, scores);
      }
      zero_pair<2>();
      score_steps<true, true>(q, x, y, half, steps, quick);
      scores = slot(b);
      store_pair<0>(scores);
      stored(b, 0, scores);
      prefetch();
      if (b + 1 < end) continue;
      score_steps<false, true>(q, y, y, 0, half, quick);
      store_pair<2>(scores + kScores / 2);
      stored(b, 1, scores);
    }
  }

  /// Computes scores without tiles, 16 positions at a time.
  template <class Slot, class Stored>
  REDLINE_INLINE void score_by_dots(const BF16* q, const Chunk& chunk, int64_t begin, int64_t end, Slot&& slot,
                                    Stored&& stored) {
    for (int64_t b = begin; b < end; ++b) {
      float* scores = slot(b);
      for (int64_t i = 0; i < 2; ++i) {
        const BF16* next = chunk.keys[min_i64(2 * b + i + 1, 2 * end - 1)];
        const Job* job = queue.empty() ? nullptr : &queue.ring[queue.taken++ % (2 * kSlots)];
        unit.score(q, chunk.keys[2 * b + i], next, head_dim, scores + i * kScores / 2, job);
        stored(b, i, scores);
      }
      prefetch();
    }
  }

  /// Stores the sums of tile `tile` to `at`; with `more`, loads the sums of two columns further.
  template <int tile>
  REDLINE_INLINE void exchange(float* at, bool more) {
    unit.template store<tile>(at, kQueryRowBytes);
    if (more) unit.template load<tile>(at + 2 * kColumn, kQueryRowBytes);
  }
  /// Adds values . weights of a pass to `into`, [column][16 of head_dim][kQueryRows]. The order of blocks does not
  /// depend on which of them the pass has, so the bits of a query row do not either. Meanwhile sums are prefetched from
  /// L2: those of the following columns, then the first ones at `next`.
  void add_values(const Pass& p, float* into, const float* next) {
    if constexpr (Unit::kIsDots)
      unit.add_values(p.chunk->values + p.begin, p.weights + p.begin, p.end - p.begin, head_dim, into, next);
    else add_values_by_tiles(p, into, next);
  }
  void add_values_by_tiles(const Pass& p, float* into, const float* next) {
    Quick quick;
    Weighing weighing;
    unit.template load<0>(into, kQueryRowBytes);
    unit.template load<1>(into + kTile, kQueryRowBytes);
    if (columns > 1) {
      unit.template load<2>(into + kColumn, kQueryRowBytes);
      unit.template load<3>(into + kColumn + kTile, kQueryRowBytes);
    }
    for (int64_t column = 0; column < columns; column += 2, into += 2 * kColumn) {
      const int64_t left = columns - column;
      const float* soon = left > 2 ? into + 2 * kColumn : next;
      for (int64_t b = p.begin; b < p.end; ++b) {
        const BF16* x = p.chunk->values[b] + column * kTileElements;
        for (int64_t i = 0; i < 2 * kColumn / kBlocks; i += 16) __builtin_prefetch(soon + i, 0, 3);
        soon += 2 * kColumn / kBlocks;
        if (left > 1) round<true, true, 0>(p.weights[b], x, x + kTileElements, weighing, quick);
        else round<true, false, 0>(p.weights[b], x, x, weighing, quick);
      }
      exchange<0>(into, left > 2);
      exchange<1>(into + kTile, left > 2);
      if (left == 1) continue;
      exchange<2>(into + kColumn, left > 3);
      exchange<3>(into + kColumn + kTile, left > 3);
    }
  }
};

}  // namespace bf16_tiled
}  // namespace redline::REDLINE_ISA_NS
