// The inner part of attention_bf16_tiles.h: tile products of a pass with vector work between them.
//
// After each product some scores of an earlier block become weights. Products and vectors overlap in the core: while
// tiles work, the vector unit adds twice but multiplies once a cycle, 16 times a product (docs/performance.md).
// Whatever belongs to 32 lines is [something][32 lines], so that a tile of 16 lines is 16 rows of 64 bytes, 128 apart.
#pragma once

#include "kernels/cpu/attention_page.h"
#include "kernels/cpu/tiles.h"

namespace redline::REDLINE_ISA_NS {
namespace bf16_tiled {

constexpr int64_t kTile = 16, kTileElements = 512;
constexpr int64_t kStep = 32;                     ///< of the summed axis in one product; positions of a block
constexpr int64_t kLines = 32, kLineBytes = 128;  ///< of a pass; of a row of them
constexpr int64_t kBlocks = kKvChunk / kStep;
constexpr int64_t kAhead = 1;                     ///< blocks of the next pass that may be scored early
constexpr int64_t kSlots = kAhead + 1;            ///< blocks of scores that wait to become weights
constexpr int64_t kScores = kStep * kLines;       ///< of a block: [32 positions][lines]
constexpr int64_t kWeights = kStep / 2 * kLines;  ///< of a block, in words of two positions: [16 pairs][lines]
constexpr int64_t kWeightSlots = kBlocks + kAhead;
constexpr int64_t kQueries = kStep / 2 * kLines * 2;  ///< of a step of head_dim: [16 pairs][lines][2]
constexpr int64_t kColumn = kTile * kLines;           ///< sums of a tile of head_dim: [16][lines]
constexpr int64_t kJobPairs = kTile / 2;
constexpr float kLn2 = 0.693147181f;
static_assert(kStep == kKvPageTokens);

REDLINE_INLINE int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/// 2^x to 7.5e-5, rounded to bfloat16: that is in the upper half, and anything in the lower one. -inf gives 0.
struct Exponential {
#if defined(__AVX512F__)
  // Of degree 3 on [0, 1); the last with half a unit of the last place of bfloat16 in [1, 2).
  VecF32 c3 = set1(0x1.3f9694p-4f), c2 = set1(0x1.cefc5cp-3f), c1 = set1(0x1.64444ap-1f), c0 = set1(0x1.00fb18p0f);
  VecI32 upper = set1_i32(static_cast<int32_t>(0xffff0000u));
  /// Keeps them in registers: the compiler would rather load them again at every use.
  Exponential() { asm volatile("" : "+v"(c3.v), "+v"(c2.v), "+v"(c1.v), "+v"(c0.v), "+v"(upper.v)); }
  REDLINE_INLINE VecI32 bits(VecF32 x) const {
    const VecF32 r = {_mm512_reduce_ps(x.v, 0x09)};  // x - floor(x), no exception; 0 for infinities
    const VecF32 p = fma(fma(fma(r, c3, c2), r, c1), r, c0);
    return bits_i32({_mm512_scalef_ps(p.v, x.v)});  // p 2^floor(x)
  }
#else
  VecI32 upper = set1_i32(static_cast<int32_t>(0xffff0000u));
  REDLINE_INLINE VecI32 bits(VecF32 x) const { return bits_i32(exp(x * set1(kLn2))) + set1_i32(0x8000); }
#endif
};

/// Sums of weights of 32 lines.
struct Totals {
  VecF32 lanes[kLines / kWidth] = {};
  REDLINE_INLINE void load_from(const float* p) {
    for (int64_t i = 0; i < kLines / kWidth; ++i) lanes[i] = load(p + i * kWidth, Full{});
  }
  REDLINE_INLINE void store_to(float* p) const {
    for (int64_t i = 0; i < kLines / kWidth; ++i) store(p + i * kWidth, lanes[i], Full{});
  }
};

/// A pair of positions: scores less `reference`, if given, to weights, which are added to `totals`.
REDLINE_INLINE void weigh(const Exponential& exponential, const float* scores, const float* reference, int32_t* weights,
                          Totals& totals) {
#pragma GCC unroll 8
  for (int64_t i = 0; i < kLines / kWidth; ++i) {
    VecF32 first = load(scores + i * kWidth, Full{}), second = load(scores + kLines + i * kWidth, Full{});
    if (reference != nullptr) {
      first = first - load(reference + i * kWidth, Full{});
      second = second - load(reference + i * kWidth, Full{});
    }
    const VecI32 a = exponential.bits(first), b = exponential.bits(second) & exponential.upper;
    store(weights + i * kWidth, shr<16>(a) | b, Full{});
    totals.lanes[i] = totals.lanes[i] + (bits_f32(a & exponential.upper) + bits_f32(b));
  }
}

/// 16 positions of scores of a pass on their way to weights.
struct Job {
  const float* scores;  ///< [16][kLines]
  int32_t* weights;     ///< [8][kLines]
  float* totals;        ///< [kLines]
};
struct JobQueue {
  Job ring[2 * kSlots];
  int64_t put = 0, taken = 0;

  void add(const Job& job) { ring[put++ % (2 * kSlots)] = job; }
  bool empty() const { return put == taken; }
};

/// A job while it is done, in registers; or none.
struct Weighing {
  const float* scores = nullptr;
  int32_t* weights = nullptr;
  float* at = nullptr;
  Totals totals;
  int64_t left = 0;  ///< pairs of positions

  REDLINE_INLINE void begin(JobQueue& queue) {
    if (queue.empty()) return;
    const Job& job = queue.ring[queue.taken++ % (2 * kSlots)];
    scores = job.scores;
    weights = job.weights;
    at = job.totals;
    totals.load_from(at);
    left = kJobPairs;
  }
  template <int pairs>
  REDLINE_INLINE void some(const Exponential& exponential) {
#pragma GCC unroll 8
    for (int i = 0; i < pairs; ++i) weigh(exponential, scores + 2 * i * kLines, nullptr, weights + i * kLines, totals);
    scores += 2 * pairs * kLines;
    weights += pairs * kLines;
    left -= pairs;
  }
  REDLINE_INLINE void end(const Exponential& exponential) {
    if (at == nullptr) return;
    while (left > 0) some<1>(exponential);
    totals.store_to(at);
    at = nullptr;
  }
};

/// Where the tiles of one chunk lie.
struct Chunk {
  int64_t first;                  ///< position
  const BF16* keys[2 * kBlocks];  ///< of 16 positions: tiles in a row
  const BF16* values[kBlocks];    ///< of 32 positions: tiles in a row
};

/// 32 lines over blocks [begin, end) of a chunk.
struct Pass {
  const Chunk* chunk;
  int64_t line, count;  ///< of the lines in scratch
  int64_t begin, end;
  Span all_see;  ///< positions that no line of the pass is blind to
  int32_t* weights[kBlocks];
  float* totals;  ///< [kLines]
  int64_t last_job;
};

/// `pairs` of positions are weighed after each product of scores.
template <class Unit, int pairs>
struct Pipeline {
  Unit& unit;
  int64_t steps, columns;  ///< of head_dim: by kStep, by kTile
  JobQueue queue = {};
  // What to bring into the second-level cache while this chunk is worked on.
  const char* wanted[2 * kBlocks] = {};
  int64_t piece_bytes = 0, pieces = 0, piece_at = 0, bytes_at_once = 0;

  void prefetch() {
    for (int64_t i = 0; i < bytes_at_once && pieces > 0; i += 64) {
      __builtin_prefetch(wanted[pieces - 1] + piece_at, 0, 2);
      piece_at += 64;
      if (piece_at >= piece_bytes) --pieces, piece_at = 0;
    }
  }
  /// Jobs until `count` of all are done.
  void finish_jobs(int64_t count) {
    const Exponential exponential;
    Weighing weighing;
    while (queue.taken < count) {
      weighing.begin(queue);
      weighing.end(exponential);
    }
  }

  /// One step: 2 x 16 lines at `lines` with tile x into tiles 0 and 1, with y into 2 and 3; after each product `work`
  /// pairs of positions are weighed.
  template <bool with_x, bool with_y, int work>
  REDLINE_INLINE void round(const void* lines, const BF16* x, const BF16* y, Weighing& weighing,
                            const Exponential& exponential) {
    unit.template load<6>(lines, kLineBytes);
    if constexpr (with_x) {
      unit.template load_once<4>(x, 64);
      unit.template dot_bf16<0, 4, 6>();
      weighing.template some<work>(exponential);
    }
    unit.template load<7>(static_cast<const char*>(lines) + 64, kLineBytes);
    if constexpr (with_x) {
      unit.template dot_bf16<1, 4, 7>();
      weighing.template some<work>(exponential);
    }
    if constexpr (with_y) {
      unit.template load_once<5>(y, 64);
      unit.template dot_bf16<2, 5, 6>();
      weighing.template some<work>(exponential);
      unit.template dot_bf16<3, 5, 7>();
      weighing.template some<work>(exponential);
    }
  }
  template <int first>
  REDLINE_INLINE void zero_pair() {
    unit.template zero<first>();
    unit.template zero<first + 1>();
  }
  template <int first>
  REDLINE_INLINE void store_pair(float* to) {
    unit.template store<first>(to, kLineBytes);
    unit.template store<first + 1>(to + kTile, kLineBytes);
  }

  /// Steps [begin, end) of scores, and one job.
  template <bool with_x, bool with_y>
  REDLINE_INLINE void score_steps(const BF16* q, const BF16* x, const BF16* y, int64_t begin, int64_t end,
                                  const Exponential& exponential) {
    constexpr int work = with_x && with_y ? pairs : 2 * pairs;
    Weighing weighing;
    weighing.begin(queue);
    int64_t s = begin;
    for (; s < end && weighing.left > 0; ++s)
      round<with_x, with_y, work>(q + s * kQueries, x + s * kTileElements, y + s * kTileElements, weighing,
                                  exponential);
    for (; s < end; ++s)
      round<with_x, with_y, 0>(q + s * kQueries, x + s * kTileElements, y + s * kTileElements, weighing, exponential);
    weighing.end(exponential);
  }

  /// Scores of blocks [begin, end) of a pass. slot(b) gives the place of block b; stored(b, i, scores) is called when
  /// its i-th 16 positions are there. The second ones are half a block behind and begin in the middle of head_dim, so
  /// that two tiles are stored while two others are in work: four stores in a row would hold up the products.
  template <class Slot, class Stored>
  REDLINE_INLINE void score_blocks(const BF16* q, const Chunk& chunk, int64_t begin, int64_t end, Slot&& slot,
                                   Stored&& stored) {
    const Exponential exponential;
    const int64_t half = steps / 2;
    float* scores = nullptr;
    for (int64_t b = begin; b < end; ++b) {
      const BF16 *x = chunk.keys[2 * b], *y = chunk.keys[2 * b + 1];
      zero_pair<0>();
      if (b == begin) {
        score_steps<true, false>(q, x, x, 0, half, exponential);
      } else {
        score_steps<true, true>(q, x, chunk.keys[2 * b - 1], 0, half, exponential);
        store_pair<2>(scores + kScores / 2);
        stored(b - 1, 1, scores);
      }
      zero_pair<2>();
      score_steps<true, true>(q, x, y, half, steps, exponential);
      scores = slot(b);
      store_pair<0>(scores);
      stored(b, 0, scores);
      prefetch();
      if (b + 1 < end) continue;
      score_steps<false, true>(q, y, y, 0, half, exponential);
      store_pair<2>(scores + kScores / 2);
      stored(b, 1, scores);
    }
  }

  /// Tile `tile` has the sums at `at`; those of two columns further take their place if there are `more`.
  template <int tile>
  REDLINE_INLINE void exchange(float* at, bool more) {
    unit.template store<tile>(at, kLineBytes);
    if (more) unit.template load<tile>(at + 2 * kColumn, kLineBytes);
  }
  /// into += values . weights of a pass; [column][16 of head_dim][kLines]. The order of blocks does not depend on which
  /// of them the pass has: a line has the same bits. Meanwhile sums come from the second-level cache: those of the
  /// columns to come, then the first at `next`.
  void add_values(const Pass& p, float* into, const float* next) {
    const Exponential exponential;
    Weighing weighing;
    unit.template load<0>(into, kLineBytes);
    unit.template load<1>(into + kTile, kLineBytes);
    if (columns > 1) {
      unit.template load<2>(into + kColumn, kLineBytes);
      unit.template load<3>(into + kColumn + kTile, kLineBytes);
    }
    for (int64_t column = 0; column < columns; column += 2, into += 2 * kColumn) {
      const int64_t left = columns - column;
      const float* soon = left > 2 ? into + 2 * kColumn : next;
      for (int64_t b = p.begin; b < p.end; ++b) {
        const BF16* x = p.chunk->values[b] + column * kTileElements;
        for (int64_t i = 0; i < 2 * kColumn / kBlocks; i += 16) __builtin_prefetch(soon + i, 0, 3);
        soon += 2 * kColumn / kBlocks;
        if (left > 1) round<true, true, 0>(p.weights[b], x, x + kTileElements, weighing, exponential);
        else round<true, false, 0>(p.weights[b], x, x, weighing, exponential);
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
