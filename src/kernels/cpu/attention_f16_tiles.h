// Attention over float16 KV pages by float16 tile products, for many query rows of text models. It is
// over 600 lines of text because the steps of a pass run between one another and share its state.
//
// Keys and values are read where kv_append put them: float16 pages have the order of the right operand of a tile
// product, for keys [head_dim][positions] and for values [positions][head_dim]. Only incomplete tiles and pages that
// are not visible as a whole are copied first. Queries and weights are rounded to float16: a score takes one product.
//
// A pass is 32 query rows over one chunk of positions, in blocks of 32 positions: scores, weights, weights . values.
// After every four tile products some rows of scores of an earlier block are turned into weights, so that the tile unit
// and the vector units work at the same time. The first block of the next pass is scored before the values of this one,
// so that vector work is available meanwhile. Scoring more blocks early does not fit in L1.
//
// There is no search for the maximum: weights are 2^(score - reference + 5). The reference of a query row is the
// largest score of its first block with a visible position, as an integer, so that rounding does not depend on it.
// Where a score lies 11 above the reference or more, the 32 query rows are recomputed with the true maximum for the
// query rows concerned, and the others get the same bits again. Weights below 2^-19 of the reference count as zero.
//
// The weights of a row are summed by a column of ones, so the divisor is the sum of the rounded weights.
//
// Error beyond that of attention.inc: scale q is rounded to float16, which changes a score by up to 2^-11 scale |q|
// |k|; weights have an error of at most 7e-4, and of 2^-20 of the reference; docs/numerics.md. scale log2(e) q beyond
// 65504 counts as 65504. The bits of a query row do not depend on the other rows of the call. Positions masked for all
// rows of the call do not affect the result; a NaN or infinite v that is visible to one row of the call may affect
// another of the same 32.
#pragma once

#include "kernels/cpu/attention_page.h"
#include "kernels/cpu/attention_soft_cap.h"
#include "kernels/cpu/tiles_f16.h"

namespace redline::REDLINE_ISA_NS {
namespace f16_tiled {

constexpr int64_t kTileRows = 16, kTileElements = 512;
constexpr int64_t kStep = 32;      ///< reduction elements of one product; positions of a block
constexpr int64_t kPassRows = 32;  ///< query rows of a pass
constexpr int64_t kBlocks = kKvChunk / kStep;
constexpr int64_t kBlockSize = kPassRows * kStep;  ///< scores or weights of a block: [query rows][positions]
constexpr int64_t kAhead = 1;  ///< blocks of the next pass that are scored before the values of this one
/// Numbers of buffered blocks, and the distance between two. The extra cache lines keep a block that is read and one
/// that is written at different page offsets.
constexpr int64_t kScoreSlots = kAhead + 2, kScoreSlotSize = kBlockSize + 10 * 16;
constexpr int64_t kWeightSlots = kBlocks + kAhead;
static_assert(kStep == kKvPageTokens && kTileRows == kKvBlockTokens);

/// A weight is 2^(v - 15), with v = score - reference + kHeadroom in [0, 31). The sum of a score and a query row's
/// offset is kUnit + v: a float in [4096, 8192), whose low 16 bits are v in steps of 2^-11.
constexpr float kUnit = 4096.0f, kHeadroom = 20.0f;
constexpr float kNoOffset = kUnit + kHeadroom + 0x1p-11f;  ///< the offset without reference; the last term rounds
/// Distance of references from zero up to which an offset is exact.
constexpr float kMaxReference = 4000.0f;

struct Pass;

/// Scores of 32 positions of a pass that are to be turned into weights.
struct Job {
  float* scores;
  F16* weights;
  Pass* pass;
  int64_t block;
};

/// Keys and values of a chunk, as tiles.
struct Chunk {
  int64_t first;                 ///< first position
  const F16* keys[2 * kBlocks];  ///< [step of head_dim][16 pairs][16 positions][2]
  const F16* values[kBlocks];    ///< [16 pairs of positions][head_dim][2]
};

/// 32 query rows over blocks [begin, end) of a chunk.
struct Pass {
  const Chunk* chunk;
  int64_t call_row;          ///< index of the first query row in the call
  int64_t query_row, count;  ///< query rows of the buffers
  int64_t begin, end;
  Span common_positions;  ///< positions that all query rows attend to
  F16* weights[kBlocks];
  int64_t last_job;            ///< number of jobs up to the last one of the pass
  int64_t no_reference;        ///< number of query rows that have no reference yet
  bool has_far_score;          ///< the weights of some query row are not valid
  float reference[kPassRows];  ///< -inf: none
  float offset[kPassRows];
};

/// The scratch of one call, sized for its head_dim.
struct Buffers {
  F16* q;     ///< [16 query rows][step of head_dim] tiles, scaled by log2(e) scale
  F16* keys;  ///< copies, of two chunks
  F16* values;
  F16* ones;      ///< a tile of ones
  float* scores;  ///< kScoreSlots blocks, and one for passes that are recomputed
  F16* weights;   ///< kWeightSlots blocks
  float* sums;    ///< sums of one pass, [kPassRows][head_dim rounded up to 16, sum of weights x 16]
  float* folded;  ///< sums over all chunks, [query rows][head_dim rounded up to 16]
  float* max;     ///< over all chunks, [query rows]
  float* total;
  Span* seen;  ///< [query rows]
};

/// Turns rows of scores into weights. `scores`: see Job.
struct Weighing {
  const float* scores = nullptr;
  F16* weights = nullptr;
  const float* offset = nullptr;
  int64_t left = 0;  ///< remaining rows of the current job
  Pass* pass = nullptr;
#if defined(__AVX512FP16__)
  // 2^f = 1 + f - d(f), f in steps of 2^-11. The 11 bits of f, as a float16, are f 2^-13, and d 2^-13 as a float16 is d
  // in the same steps, which is subtracted as an integer. d = f (r - (k f + l)^2).
  __m512 low = _mm512_set1_ps(kUnit);
  __m512h k = _mm512_set1_ph(static_cast<_Float16>(0x1.1b4p+11f)),
          l = _mm512_set1_ph(static_cast<_Float16>(0x1.a64p-2f)),
          r = _mm512_set1_ph(static_cast<_Float16>(0x1.e68p-2f));
  __m512i fraction = _mm512_set1_epi16(0x7ff), order, seen = _mm512_setzero_si512();
  __m512i swap = _mm512_set4_epi32(0x0d0c0f0e, 0x09080b0a, 0x05040706, 0x01000302);
  Weighing() {
    alignas(64) uint16_t places[32];
    for (int i = 0; i < 32; ++i) places[i] = static_cast<uint16_t>(i % 16 * 2 + i / 16);
    order = _mm512_load_si512(places);
    asm volatile("" : "+v"(k), "+v"(l), "+v"(r), "+v"(fraction), "+v"(order), "+v"(swap), "+v"(low));
  }
  REDLINE_INLINE __m512i bits(const float* p, __m512 from) const {
    return _mm512_castps_si512(_mm512_max_ps(low, _mm512_add_ps(from, _mm512_loadu_ps(p))));  // this order keeps a NaN
  }
  REDLINE_INLINE void weigh(__m512i a, __m512i b, F16* to) {
    seen = _mm512_ternarylogic_epi32(seen, a, b, 0xfe);
    // The low halves of a and b, of positions 0 16 1 17 and so on.
    const __m512i pairs = _mm512_mask_shuffle_epi8(a, 0xccccccccccccccccull, b, swap);
    const __m512i x = _mm512_permutexvar_epi16(order, pairs);
    const __m512h t = _mm512_castsi512_ph(_mm512_and_si512(x, fraction));
    const __m512h u = _mm512_fmadd_ph(t, k, l);
    const __m512h d = _mm512_mul_ph(_mm512_fnmadd_ph(u, u, r), t);
    _mm512_storeu_si512(to, _mm512_srli_epi16(_mm512_sub_epi16(x, _mm512_castph_si512(d)), 1));
  }
  template <int rows>
  REDLINE_INLINE void some() {
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      const __m512 from = _mm512_set1_ps(offset[i]);
      weigh(bits(scores + i * kStep, from), bits(scores + i * kStep + 16, from), weights + i * kStep);
    }
    scores += rows * kStep, weights += rows * kStep, offset += rows, left -= rows;
  }
  /// Computes weights of (score - before) + offset.
  REDLINE_INLINE void weigh_exactly(const float* from, float before, float add, F16* to) {
    const auto one = [&](const float* p) {
      const __m512 x = _mm512_sub_ps(_mm512_loadu_ps(p), _mm512_set1_ps(before));
      return _mm512_castps_si512(_mm512_max_ps(low, _mm512_add_ps(_mm512_set1_ps(add), x)));
    };
    weigh(one(from), one(from + 16), to);
  }
  /// Returns true if a score was too far above the reference of its query row, or NaN.
  REDLINE_INLINE bool take_far() {
    const uint32_t far = _mm512_test_epi32_mask(seen, _mm512_set1_epi32(static_cast<int32_t>(0xba7f0000u)));
    seen = _mm512_setzero_si512();
    return far != 0;
  }
#else
  bool far = false;
  void weigh_exactly(const float* from, float before, float add, F16* to) {
    for (int64_t i = 0; i < kStep; i += kWidth) {
      const VecF32 s = (load(from + i, Full{}) - set1(before)) + set1(add);
      alignas(64) float each[kWidth];
      store(each, s, Full{});
      for (const float x : each) far |= !(x < kUnit + 31.0f);
      store(to + i, exp((s - set1(kUnit + 0x1p-11f + 15.0f)) * set1(kLn2)), Full{});
    }
  }
  template <int rows>
  void some() {
    for (int i = 0; i < rows; ++i) weigh_exactly(scores + i * kStep, 0.0f, offset[i], weights + i * kStep);
    scores += rows * kStep, weights += rows * kStep, offset += rows, left -= rows;
  }
  bool take_far() {
    const bool was = far;
    far = false;
    return was;
  }
#endif
};

/// One call over as many query rows as the scratch holds. `work`: rows of scores turned into weights per product.
template <class Unit, int work>
struct Call {
  Unit& unit;
  const AttentionArgs& a;
  const Buffers& b;
  int64_t first, query_rows;    ///< query rows of the call
  Span span;                    ///< positions that any of the query rows attends to
  int64_t position, end_chunk;  ///< first position of the next pass's chunk; end of the last chunk
  int64_t group = 0;            ///< 32 query rows of the next pass
  int64_t steps = round_up(a.head_dim, kStep) / kStep, columns = round_up(a.head_dim, kTileRows) / kTileRows;
  Chunk chunks[2] = {};
  Pass passes[2] = {};
  int64_t chunk_turn = 0, score_turn = 0, weight_turn = 0;
  Job ring[kScoreSlots] = {};
  int64_t put = 0, taken = 0;

  int64_t deep() const { return steps * kStep; }
  int64_t wide() const { return columns * kTileRows; }
  int64_t sums_stride() const { return wide() + kTileRows; }
  int64_t value_stride() const { return copies_values() ? wide() : a.head_dim; }  ///< in pairs of positions
  bool copies_keys() const { return a.head_dim % kStep != 0; }
  bool copies_values() const { return a.head_dim % kTileRows != 0; }
  bool whole_page(int64_t at) const { return at >= span.begin && at + kStep <= span.end; }
  const F16* page(const void* base, int64_t at) const {
    return static_cast<const F16*>(base) + a.pages[at / kStep] * a.cache.page_stride;
  }

  void load_queries() const {
    const VecF32 scale = set1(a.scale * kLog2E), most = set1(65504.0f), least = set1(-65504.0f);
    for (int64_t l = 0; l < round_up(query_rows, kPassRows); ++l) {
      F16* out = b.q + l / kTileRows * kTileRows * deep() + l % kTileRows * kStep;
      for (int64_t s = 0; s < steps; ++s)
        for (int64_t d = 0; d < kStep; d += kWidth) store(out + s * kTileElements + d, zero_f32(), Full{});
      b.seen[l] = visible(a, first + min_i64(l, query_rows - 1));
      if (l >= query_rows) continue;
      const float* q = query_of(a, first + l);
      for (int64_t s = 0; s < steps; ++s) {
        for_lanes(min_i64(kStep, a.head_dim - s * kStep), [&](int64_t d, auto lanes) {
          const VecF32 x = load(q + s * kStep + d, lanes) * scale;
          store(out + s * kTileElements + d, max(least, min(most, x)), Full{});  // this order keeps a NaN
        });
      }
      b.max[l] = -__builtin_inff();
      b.total[l] = 0.0f;
      for (int64_t d = 0; d < wide() && merges(a); d += kWidth) store(b.folded + l * wide() + d, zero_f32(), Full{});
    }
  }

  /// Copies keys, zero-padded to whole steps of head_dim.
  const F16* copied_keys(const F16* from, F16* to) const {
    const int64_t width = even(a.head_dim);
    for (int64_t half = 0; half < kStep / kTileRows; ++half) {
      F16* padded = to + half * kTileRows * deep();
      __builtin_memcpy(padded, from + half * kTileRows * width, static_cast<size_t>(kTileRows * width) * sizeof(F16));
      __builtin_memset(padded + kTileRows * width, 0, static_cast<size_t>(kTileRows * (deep() - width)) * sizeof(F16));
    }
    return to;
  }
  /// Copies values, with zeros at positions that no query row attends to.
  const F16* copied_values(const F16* from, int64_t at, F16* to) const {
    const int64_t width = even(a.head_dim), stride = value_stride();
    __builtin_memset(to, 0, static_cast<size_t>(kStep * stride) * sizeof(F16));
    for (int64_t t = 0; t < kStep; ++t) {
      if (at + t < span.begin || at + t >= span.end) continue;
      const F16* source = from + t / 2 * 2 * width + t % 2;
      F16* target = to + t / 2 * 2 * stride + t % 2;
      for (int64_t d = 0; d < a.head_dim; ++d) target[2 * d] = source[2 * d];
    }
    return to;
  }

  void open_chunk() {
    const int64_t turn = chunk_turn++ % 2, width = even(a.head_dim), row = copies_keys() ? deep() : width;
    Chunk& c = chunks[turn];
    c.first = position;
    for (int64_t i = 0; i < kBlocks; ++i) {
      const int64_t at = position + i * kStep, copy = (turn * kBlocks + i) * kStep;
      if (at + kStep <= span.begin || at >= span.end) continue;
      const F16 *k = page(a.cache.k, at), *v = page(a.cache.v, at);
      if (copies_keys()) k = copied_keys(k, b.keys + copy * deep());
      if (copies_values() || !whole_page(at)) v = copied_values(v, at, b.values + copy * wide());
      c.keys[2 * i] = k;
      c.keys[2 * i + 1] = k + kTileRows * row;
      c.values[i] = v;
    }
  }

  /// Finds the next pass with work to do. Returns false at the end.
  bool next(Pass& p) {
    for (; position < end_chunk; position += kKvChunk, group = 0) {
      const bool has_some = span.begin < position + kKvChunk && span.end > position;
      if (group == 0 && has_some) open_chunk();
      for (; group * kPassRows < query_rows;) {
        const int64_t query_row = group++ * kPassRows, count = min_i64(kPassRows, query_rows - query_row);
        const Span low = b.seen[query_row], high = b.seen[query_row + count - 1];
        const int64_t from = max_i64(low.begin, position) - position,
                      to = min_i64(high.end, position + kKvChunk) - position;
        p.query_row = query_row, p.count = count, p.call_row = first + query_row;
        p.chunk = &chunks[(chunk_turn + 1) % 2];
        if (from >= to) {
          if (!merges(a)) write_nothing(p);
          continue;
        }
        p.begin = from / kStep, p.end = (to + kStep - 1) / kStep;
        p.common_positions = {high.begin, low.end};
        p.no_reference = kPassRows, p.has_far_score = false;
        for (int64_t l = 0; l < kPassRows; ++l) p.reference[l] = -__builtin_inff(), p.offset[l] = kNoOffset;
        for (int64_t i = p.begin; i < p.end; ++i) p.weights[i] = b.weights + weight_turn++ % kWeightSlots * kBlockSize;
        return true;
      }
    }
    return false;
  }

  /// Caps the scores of a block and sets the masked ones to -inf.
  void hide(const Pass& p, int64_t block, float* scores) const {
    const int64_t at = p.chunk->first + block * kStep;
    if (a.soft_cap > 0) cap_scores(scores, kBlockSize, a.soft_cap * kLog2E);
    if (at >= p.common_positions.begin && at + kStep <= p.common_positions.end) return;
    for (int64_t l = 0; l < kPassRows; ++l) {
      const Span s = b.seen[p.query_row + l];
      float* row = scores + l * kStep;
      for (int64_t i = 0; i < min_i64(s.begin - at, kStep); ++i) row[i] = -__builtin_inff();
      for (int64_t i = max_i64(s.end - at, 0); i < kStep; ++i) row[i] = -__builtin_inff();
    }
  }
  /// Sets the references of query rows that have none and see a score in this block.
  void find_references(Pass& p, const float* scores) const {
    for (int64_t i = 0; i < kPassRows; i += kWidth) {
      VecF32 rows[kWidth];
      for (int64_t j = 0; j < kWidth; ++j) {
        const float* row = scores + (i + j) * kStep;
        rows[j] = load(row, Full{});
        for (int64_t t = kWidth; t < kStep; t += kWidth) rows[j] = max(load(row + t, Full{}), rows[j]);
      }
      transpose(rows);
      VecF32 top = set1(-__builtin_inff());  // max returns its second operand for a NaN
      for (int64_t j = 0; j < kWidth; ++j) top = max(rows[j], top);
      alignas(64) float found[kWidth];
      store(found, top, Full{});
      for (int64_t j = 0; j < kWidth; ++j) {
        if (p.reference[i + j] != -__builtin_inff() || found[j] == -__builtin_inff()) continue;
        --p.no_reference;
        const bool is_near = found[j] < kMaxReference && found[j] > -kMaxReference;
        p.reference[i + j] = is_near ? static_cast<float>(static_cast<int32_t>(found[j])) : 0.0f;
        p.offset[i + j] = is_near ? kNoOffset - p.reference[i + j] : __builtin_nanf("");
      }
    }
  }
  [[gnu::noinline]] void prepare(const Job& job) const {
    hide(*job.pass, job.block, job.scores);
    if (job.pass->no_reference > 0) find_references(*job.pass, job.scores);
  }
  bool is_plain(const Job& job) const {
    const int64_t at = job.pass->chunk->first + job.block * kStep;
    return job.pass->no_reference == 0 && a.soft_cap == 0 && at >= job.pass->common_positions.begin &&
           at + kStep <= job.pass->common_positions.end;
  }

  REDLINE_INLINE void begin_job(Weighing& w) {
    if (taken == put) return;
    const Job& job = ring[taken++ % kScoreSlots];
    if (!is_plain(job)) prepare(job);
    w.scores = job.scores, w.weights = job.weights, w.offset = job.pass->offset, w.pass = job.pass;
    w.left = job.pass->count > kTileRows ? kPassRows : kTileRows;
  }
  REDLINE_INLINE void end_job(Weighing& w) {
    while (w.left > 0) w.template some<4>();
    if (w.pass != nullptr && w.take_far()) w.pass->has_far_score = true;
    w.pass = nullptr;
  }
  /// Runs jobs until `count` jobs in total are done.
  REDLINE_INLINE void finish_jobs(Weighing& w, int64_t count) {
    end_job(w);
    while (taken < count) {
      begin_job(w);
      end_job(w);
    }
  }
  /// Loads the operands of the next step. The loads come before the stores of this step's work and of scores: a load
  /// waits for earlier stores at its offset in a page, and these wait for the products before them.
  REDLINE_INLINE void load_step(const F16* q, const F16* x, const F16* y, bool both) {
    unit.template load<4>(q, 64);
    unit.template load_once<6>(x, 64);
    unit.template load_once<7>(y, 64);
    if (both) unit.template load<5>(q + steps * kTileElements, 64);
  }
  REDLINE_INLINE void multiply(bool both) {
    unit.template dot_f16<0, 4, 6>();
    unit.template dot_f16<1, 4, 7>();
    if (!both) return;
    unit.template dot_f16<2, 5, 6>();
    unit.template dot_f16<3, 5, 7>();
  }
  REDLINE_INLINE void zero_sums() {
    unit.template zero<0>();
    unit.template zero<1>();
    unit.template zero<2>();
    unit.template zero<3>();
  }
  /// Turns the next rows of scores into weights.
  REDLINE_INLINE void some_work(Weighing& w) {
    if (w.left == 0) {
      end_job(w);
      begin_job(w);
    }
    if (w.left > 0) w.template some<4 * work>();
  }
  /// Scores blocks [from, to) of a pass. slot(block) returns the buffer of a block; stored(block, scores) is called
  /// when it is full.
  template <bool works, class Slot, class Stored>
  REDLINE_INLINE void score_blocks(const Pass& p, int64_t from, int64_t to, Weighing& w, Slot&& slot, Stored&& stored) {
    if (from >= to) return;
    const bool both = p.count > kTileRows;
    const F16* const first_q = b.q + p.query_row * deep();
    const F16* const* keys = p.chunk->keys;
    const F16 *q = first_q, *x = keys[2 * from], *y = keys[2 * from + 1];
    const int64_t num_steps = steps;
    load_step(q, x, y, both);
    for (int64_t block = from; block < to; ++block) {
      float* scores = slot(block);
      zero_sums();
      for (int64_t s = 1; s < num_steps; ++s) {
        multiply(both);
        q += kTileElements, x += kTileElements, y += kTileElements;
        load_step(q, x, y, both);
        if constexpr (works) some_work(w);
      }
      multiply(both);
      if (block + 1 < to) {
        q = first_q, x = keys[2 * block + 2], y = keys[2 * block + 3];
        load_step(q, x, y, both);
      }
      unit.template store<0>(scores, kStep * 4);
      unit.template store<1>(scores + kTileRows, kStep * 4);
      unit.template store<2>(scores + kTileRows * kStep, kStep * 4);
      unit.template store<3>(scores + kTileRows * kStep + kTileRows, kStep * 4);
      stored(block, scores);
      if constexpr (works) some_work(w);
    }
  }
  /// Scores blocks [from, to) of a pass and queues them as jobs.
  REDLINE_INLINE void score(Pass& p, int64_t from, int64_t to, Weighing& w) {
    score_blocks<true>(
        p, from, to, w,
        [&](int64_t) {
          if (put - taken >= kScoreSlots - 1) finish_jobs(w, put - kScoreSlots + 2);
          return b.scores + score_turn++ % kScoreSlots * kScoreSlotSize;
        },
        [&](int64_t block, float* scores) {
          ring[put++ % kScoreSlots] = {scores, p.weights[block], &p, block};
        });
    p.last_job = put;
  }
  void score_block(const Pass& p, int64_t block, float* scores, Weighing& w) {
    score_blocks<false>(
        p, block, block + 1, w, [&](int64_t) { return scores; }, [](int64_t, float*) {});
  }

  /// Computes sums of weights . values for two columns of 16, of which the one after the last sums the weights.
  template <bool works>
  REDLINE_INLINE void add_values(const Pass& p, int64_t column, Weighing& w) {
    const bool both = p.count > kTileRows, is_pair = column < columns, has_ones = column + 1 >= columns;
    const int64_t stride = value_stride() * 4;
    const F16* const* values = p.chunk->values;
    Unit& tiles = unit;
    const auto load_block = [&](int64_t i) {
      tiles.template load<4>(p.weights[i], 64);
      if (is_pair) tiles.template load_once<6>(values[i] + column * kStep, stride);
      if (!has_ones) tiles.template load_once<7>(values[i] + (column + 1) * kStep, stride);
      if (both) tiles.template load<5>(p.weights[i] + kTileRows * kStep, 64);
    };
    const auto multiply_block = [&] {
      if (is_pair) return multiply(both);
      tiles.template dot_f16<1, 4, 7>();
      if (both) tiles.template dot_f16<3, 5, 7>();
    };
    if (has_ones) tiles.template load<7>(b.ones, 64);
    load_block(p.begin);
    zero_sums();
    for (int64_t i = p.begin + 1; i < p.end; ++i) {
      multiply_block();
      load_block(i);
      if constexpr (works) some_work(w);
    }
    multiply_block();
    const int64_t sums_bytes = sums_stride() * 4, down = kTileRows * sums_stride();
    float* sums = b.sums + column * kTileRows;
    if (is_pair) {
      tiles.template store<0>(sums, sums_bytes);
      if (both) tiles.template store<2>(sums + down, sums_bytes);
      sums += kTileRows;
    }
    tiles.template store<1>(sums, sums_bytes);
    if (both) tiles.template store<3>(sums + down, sums_bytes);
    if constexpr (works) some_work(w);
  }

  /// Recomputes a pass, with the true maximum as the reference of query rows whose reference was too low. Each row's
  /// own scores decide which of its two references is used, so that its bits do not depend on the other rows.
  [[gnu::noinline]] void recompute(Pass& p, bool* is_nan) {
    float* scores = b.scores + kScoreSlots * kScoreSlotSize;
    float highest[kPassRows], before[kPassRows];
    Weighing w;
    for (int64_t l = 0; l < kPassRows; ++l) highest[l] = -__builtin_inff(), is_nan[l] = false;
    for (int64_t block = p.begin; block < p.end; ++block) {
      score_block(p, block, scores, w);
      hide(p, block, scores);
      for (int64_t l = 0; l < p.count; ++l) {
        for (int64_t i = 0; i < kStep; ++i) {
          const float x = scores[l * kStep + i];
          if (!(x < __builtin_inff())) is_nan[l] = true;
          else highest[l] = max_f32(x, highest[l]);
        }
      }
    }
    for (int64_t l = 0; l < kPassRows; ++l) {
      before[l] = 0.0f;
      if (highest[l] == -__builtin_inff() || highest[l] + p.offset[l] < kUnit + 31.0f) continue;
      before[l] = p.reference[l] = highest[l];
      p.offset[l] = kNoOffset;
    }
    for (int64_t block = p.begin; block < p.end; ++block) {
      score_block(p, block, scores, w);
      hide(p, block, scores);
      for (int64_t l = 0; l < p.count; ++l)
        w.weigh_exactly(scores + l * kStep, before[l], p.offset[l], p.weights[block] + l * kStep);
    }
    for (int64_t column = 0; column <= columns; column += 2) add_values<false>(p, column, w);
  }

  /// Merges the result of a pass into that of earlier chunks, or writes it as partials.
  [[gnu::noinline]] void complete(Pass& p) {
    bool is_nan[kPassRows] = {};
    alignas(64) float top[kPassRows], total[kPassRows];
    const float none = -__builtin_inff();
    bool good = !p.has_far_score;
    for (int64_t l = 0; l < p.count; ++l) good = good && b.sums[l * sums_stride() + wide()] < __builtin_inff();
    if (!good) recompute(p, is_nan);
    for (int64_t l = 0; l < p.count; ++l) {
      total[l] = is_nan[l] ? __builtin_nanf("") : b.sums[l * sums_stride() + wide()];
      top[l] = total[l] == 0.0f ? none : (p.reference[l] - (kHeadroom - 15.0f)) * kLn2;
      if (is_nan[l]) top[l] = 0.0f;
    }
    if (merges(a)) fold(p, top, total);
    else write_partials(p, top, total);
  }
  /// Computes fold() of attention_page.h for the query rows of the pass, with the same bits; their exponentials are
  /// computed together.
  REDLINE_INLINE void fold(const Pass& p, const float* top, const float* total) const {
    alignas(64) float old_scale[kPassRows] = {}, scale[kPassRows] = {};
    const float none = -__builtin_inff();
    for (int64_t l = 0; l < p.count; ++l) {
      const float old = b.max[p.query_row + l], highest = top[l] > old ? top[l] : old;
      old_scale[l] = old == none && b.total[p.query_row + l] == 0.0f ? none : old - highest;
      scale[l] = top[l] - highest;
    }
    for (int64_t l = 0; l < kPassRows; l += kWidth) {
      store(old_scale + l, exp(load(old_scale + l, Full{})), Full{});
      store(scale + l, exp(load(scale + l, Full{})), Full{});
    }
    for (int64_t l = 0; l < p.count; ++l) {
      if (top[l] == none && total[l] == 0.0f) continue;
      const int64_t i = p.query_row + l, width = wide();
      b.max[i] = top[l] > b.max[i] ? top[l] : b.max[i];
      b.total[i] = b.total[i] * old_scale[l] + total[l] * scale[l];
      float* into = b.folded + i * width;
      const float* part = b.sums + l * sums_stride();
      const VecF32 x = set1(old_scale[l]), y = set1(scale[l]);
      for (int64_t d = 0; d < width; d += kWidth)
        store(into + d, load(into + d, Full{}) * x + load(part + d, Full{}) * y, Full{});
    }
  }

  float* partials_of(const Pass& p) const {
    return a.partials +
           ((position - a.kv_begin) / kKvChunk * a.rows * a.group + p.call_row) * attention_partial_floats(a.head_dim);
  }
  void write_partials(const Pass& p, const float* top, const float* total) const {
    const int64_t floats = attention_partial_floats(a.head_dim);
    float* out = a.partials + ((p.chunk->first - a.kv_begin) / kKvChunk * a.rows * a.group + p.call_row) * floats;
    for (int64_t l = 0; l < p.count; ++l, out += floats) {
      for (int64_t d = 0; d < wide(); d += kWidth) store(out + d, load(b.sums + l * sums_stride() + d, Full{}), Full{});
      store_tail({out, top[l], total[l]}, a.head_dim);
    }
  }
  void write_nothing(const Pass& p) const {
    float* out = partials_of(p);
    for (int64_t l = 0; l < p.count; ++l, out += attention_partial_floats(a.head_dim))
      store_tail({out, -__builtin_inff(), 0.0f}, a.head_dim);
  }

  void run() {
    load_queries();
    Pass* now = &passes[0];
    Pass* then = &passes[1];
    bool more = next(*now);
    Weighing w;
    if (more) score(*now, now->begin, now->end, w);
    while (more) {
      more = next(*then);
      const int64_t early = more ? min_i64(then->begin + kAhead, then->end) : 0;
      if (more) score(*then, then->begin, early, w);
      if (taken <= now->last_job) finish_jobs(w, now->last_job);
      for (int64_t column = 0; column <= columns; column += 2) add_values<true>(*now, column, w);
      complete(*now);
      if (more) score(*then, early, then->end, w);
      Pass* swap = now;
      now = then, then = swap;
    }
    for (int64_t l = 0; l < query_rows && merges(a); ++l)
      keep_row(a, {b.folded + l * wide(), b.max[l], b.total[l]}, first + l);
  }
};

}  // namespace f16_tiled

template <class Unit>
void attention_by_f16_tiles(Unit& unit, const AttentionArgs& a) {
  using namespace f16_tiled;
  const int64_t deep = round_up(a.head_dim, kStep), wide = round_up(a.head_dim, kTileRows);
  char* free = static_cast<char*>(a.scratch);
  Buffers b;
  b.keys = take<F16>(free, a.head_dim % kStep != 0 ? 2 * kKvChunk * deep : 0);
  b.values = take<F16>(free, 2 * kKvChunk * wide);
  b.ones = take<F16>(free, kTileElements);
  b.scores = take<float>(free, (kScoreSlots + 1) * kScoreSlotSize);
  b.weights = take<F16>(free, kWeightSlots * kBlockSize);
  b.sums = take<float>(free, kPassRows * (wide + kTileRows));
  const int64_t left = kScratchBytes - (free - static_cast<char*>(a.scratch)) - 512;
  const int64_t per_query_row = deep * 2 + wide * 4 + 8 + static_cast<int64_t>(sizeof(Span));
  const int64_t most = left / per_query_row / kPassRows * kPassRows, num_query_rows = a.rows * a.group;
  b.q = take<F16>(free, most * deep);
  b.folded = take<float>(free, most * wide);
  b.max = take<float>(free, most);
  b.total = take<float>(free, most);
  b.seen = take<Span>(free, most);
  for (int64_t i = 0; i < kTileElements; i += kWidth) store(b.ones + i, set1(1.0f), Full{});
  for (int64_t first = 0; first < num_query_rows; first += most) {
    const int64_t query_rows = min_i64(most, num_query_rows - first);
    // Rows are in order of position: the first query row has the earliest visible position, the last one the latest.
    const Span span = {max_i64(a.kv_begin, visible(a, first).begin),
                       min_i64(a.kv_end, visible(a, first + query_rows - 1).end)};
    const int64_t begin = a.partials != nullptr ? a.kv_begin : span.begin / kKvChunk * kKvChunk;
    const int64_t end = a.partials != nullptr ? a.kv_end : span.end;
    if (a.head_dim <= 64) Call<Unit, 2>{unit, a, b, first, query_rows, span, begin, end}.run();
    else Call<Unit, 1>{unit, a, b, first, query_rows, span, begin, end}.run();
  }
}

}  // namespace redline::REDLINE_ISA_NS
