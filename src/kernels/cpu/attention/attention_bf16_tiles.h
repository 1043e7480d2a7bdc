// Attention over bfloat16 KV pages by bfloat16 tile products: queries, keys, values and weights have 8 bits of
// mantissa, sums are float32. For image models, where thousands of query rows attend to thousands of keys.
//
// Products are transposed: tiles of scores are [16 keys][16 query rows] = keys . queries, tiles of sums [16 of
// head_dim][16 query rows] = values . weights. A vector lane is therefore always one query row: sums of weights and
// rescaling cross no lanes, and two rows of scores become one row of bfloat16 weights in tile order by a shift and a
// blend. Keys and values are read where kv_append put them (KvHeadView); incomplete tiles and partly masked pages are
// copied first.
//
// A pass is 32 query rows over one chunk of positions: scores, weights, weights . values. The products are those of a
// tile unit or, without one, of attention_dots.h. attention_bf16_pipeline.h does products and vector work at the same
// time; the first blocks of the next pass are scored before the values of this one, so that vector work is available
// meanwhile.
//
// There is no search for the maximum: weights are 2^(score - reference - 32), which float32 and bfloat16 represent
// wherever the maximum lies. The reference of a query row is the largest of its first 16 visible scores, as an
// integer, so that rounding does not depend on the reference. If its sum of weights exceeds 2^100, the reference was
// too low: the 32 query rows are recomputed with the true maximum for that row, and the others get the same bits again.
//
// With a tile unit weights are computed in 16-bit integers, two positions at once, for scores within 2^-95 .. 2^32 of
// the reference. If a query row has a score outside that range, its weights of those 16 positions are recomputed in
// float32. The weights of a row are summed by a column of ones where head_dim leaves one free in its last tile, by
// vectors otherwise and without tiles. Sums of weights . values stay in tiles (registers) from block to block and are
// stored to memory only between chunks. Partials are calls of one chunk: unlike those of other kernels they add up to a
// single call only within rounding. No image model uses them.
//
// Error beyond that of attention.inc: scale q is rounded to bfloat16, which changes scores by up to 2^-9 scale |q| |k|;
// weights have an error of at most 5.9e-3, 2.1e-3 rms (of which rounding to bfloat16 is 3.9e-3 and 1.7e-3), but the
// divisor is the sum of the same weights; docs/numerics.md. v below 2^-94 may be treated as zero. The bits of a query
// row do not depend on the other rows of the call. Positions masked for all rows of the call do not affect the result;
// a NaN or infinite v that is visible to one row of the call may affect another of the same 32.
#pragma once

#include "kernels/cpu/attention/attention_bf16_pipeline.h"
#include "kernels/cpu/attention/attention_soft_cap.h"

namespace redline::REDLINE_ISA_NS {
namespace bf16_tiled {

/// Maximum sum of weights. A larger one means that the reference of a query row is too low.
constexpr float kMaxTotal = 0x1p100f;
/// Number of visible positions below which a query row uses exact weights: there is little time to gain, and each
/// weight matters more.
constexpr int64_t kFewPositions = 256;

/// The scratch of one call, sized for its head_dim.
struct Buffers {
  BF16* q;  ///< [32 query rows][step of head_dim] of kQueries, scaled by log2(e) scale / kScoreUnit
  /// [32 query rows][16 of head_dim][16][32 query rows]. With tiles, a partial last 16 holds the sum of weights.
  float* sums;
  float* top;                  ///< [query rows], exponent of 2; -inf: no score yet
  Reference* reference;        ///< per 32 query rows
  Span* seen;                  ///< [query rows]
  int64_t* visible_positions;  ///< [query rows], visible positions over all calls
  float* scores;               ///< kSlots blocks of scores
  int32_t* weights;            ///< kWeightSlots blocks of weights
  BF16* keys;                  ///< copies of the keys and values of a chunk
  BF16* values;
};

/// Transposes [16 of head_dim][kQueryRows] to query rows: `width` elements of `count` rows, times their scale if it is
/// given.
template <class Row>
REDLINE_INLINE void write_rows(const float* tile, const float* scale, int64_t width, int64_t count, Row&& row) {
  for (int64_t l = 0; l < count; l += kWidth) {
    for (int64_t d = 0; d < width; d += kWidth) {
      VecF32 block[kWidth];
      for (int i = 0; i < kWidth; ++i) {
        block[i] = load(tile + (d + i) * kQueryRows + l, Full{});
        if (scale != nullptr) block[i] = block[i] * load(scale + l, Full{});
      }
      transpose(block);
      for (int i = 0; i < min_i64(kWidth, count - l); ++i) {
        if (d + kWidth <= width) store(row(l + i) + d, block[i], Full{});
        else store(row(l + i) + d, block[i], Tail{static_cast<int>(width - d)});
      }
    }
  }
}

/// One call over as many query rows as the scratch holds.
template <class Unit, int pairs, bool summed>
struct Call {
  const AttentionArgs& a;
  const Buffers& b;
  Pipeline<Unit, pairs, summed> pipe;
  int64_t first, query_rows;  ///< query rows of the call
  Span span;                  ///< positions that any of the query rows attends to
  int64_t position = 0;
  int64_t first_group = 0, end_group = 0, group = 0;  ///< groups of 32 query rows; the next pass
  Chunk chunks[2];
  int64_t chunk_turn = 0, score_turn = 0, weight_turn = 0;

  int64_t groups() const { return (query_rows + kQueryRows - 1) / kQueryRows; }
  int64_t deep() const { return pipe.steps * kStep; }
  int64_t wide() const { return pipe.columns * kTile; }

  void load_queries() {
    alignas(64) BF16 words[kTile * kStep];
    for (int64_t l = 0; l < round_up(query_rows, kQueryRows); l += kTile) {
      for (int64_t s = 0; s < pipe.steps; ++s) {
        const int64_t width = min_i64(kStep, a.head_dim - s * kStep);
        for (int64_t i = 0; i < kTile; ++i) {
          for (int64_t d = 0; d < kStep; d += kWidth) store(words + i * kStep + d, zero_f32(), Full{});
          if (l + i >= query_rows) continue;
          const int64_t query_row = first + l + i;
          const float* q = a.q + query_row / a.group * a.q_stride + query_row % a.group * a.head_dim + s * kStep;
          for_lanes(width, [&](int64_t d, auto lanes) {
            store(words + i * kStep + d, load(q + d, lanes) * set1(a.scale * kLog2E) * set1(1 / kScoreUnit), Full{});
          });
        }
        // A word is a pair of head_dim of one query row; a row of the tile is one pair of all query rows.
        const auto* from = reinterpret_cast<const float*>(words);
        auto* to = reinterpret_cast<float*>(b.q + l / kQueryRows * deep() * kQueryRows + s * kQueries) + l % kQueryRows;
        for (int64_t i = 0; i < kTile; i += kWidth) {
          for (int64_t d = 0; d < kTile; d += kWidth) {
            VecF32 block[kWidth];
            for (int j = 0; j < kWidth; ++j) block[j] = load(from + (i + j) * kTile + d, Full{});
            transpose(block);
            for (int j = 0; j < kWidth; ++j) store(to + (d + j) * kQueryRows + i, block[j], Full{});
          }
        }
      }
    }
    for (int64_t l = 0; l < round_up(query_rows, kQueryRows); ++l) {
      b.seen[l] = visible(a, first + min_i64(l, query_rows - 1));
      const Span all = a.partials == nullptr ? b.seen[l] : visible_in_all(a, first + min_i64(l, query_rows - 1));
      b.visible_positions[l] = all.end - all.begin;
      b.top[l] = -__builtin_inff();
    }
    for (int64_t g = 0; g < groups(); ++g) set_references(g), clear_sums(g * kQueryRows);
  }

  void set_references(int64_t g) const {
    b.reference[g].has_no_score = false;
    for (int64_t l = 0; l < kQueryRows; ++l) {
      b.reference[g].has_no_score |= b.top[g * kQueryRows + l] == -__builtin_inff();
      const float top = b.top[g * kQueryRows + l], from = -kHeadroom - (top == -__builtin_inff() ? 0.0f : top);
      const bool few = b.visible_positions[g * kQueryRows + l] < kFewPositions;
      b.reference[g].quick[l] = few ? __builtin_nanf("") : 2.0f + (from + 127.0f) * (1 / kScoreUnit) + 0x1p-21f;
      b.reference[g].exact[l] = from + kQuickGain;
    }
  }
  /// Updates references from 16 positions: the largest score, as an integer exponent of 2.
  [[gnu::noinline]] void find_tops(int64_t query_row, const float* scores, bool all) const {
    // Infinities and NaN are ignored: max and min return their second operand for a NaN.
    for (int64_t i = 0; i < kQueryRows; i += kWidth) {
      const VecF32 none = set1(-__builtin_inff()), most = set1(0x1p24f / kScoreUnit);
      VecF32 largest = none;
      for (int64_t t = 0; t < kTile; ++t) largest = max(load(scores + t * kQueryRows + i, Full{}), largest);
      alignas(64) float found[kWidth];
      store(found, min(largest, most) * set1(kScoreUnit), Full{});
      for (int64_t l = 0; l < kWidth; ++l) {
        float& top = b.top[query_row + i + l];
        if (!all && top != -__builtin_inff()) continue;
        if (found[l] > -0x1p24f && found[l] > top) top = static_cast<float>(static_cast<int32_t>(found[l]));
      }
    }
    set_references(query_row / kQueryRows);
  }
  bool whole_page(int64_t at) const { return at >= span.begin && at + kStep <= span.end; }
  bool copies_keys() const { return a.head_dim % kStep != 0; }
  bool copies_values() const { return a.head_dim % kTile != 0; }
  bool copies(int64_t at) const {
    if (copies_keys() || copies_values()) return true;
    return (span.begin > at && span.begin % kStep != 0) || (span.end < at + kKvChunk && span.end % kStep != 0);
  }
  const BF16* page(const void* base, int64_t at) const {
    return static_cast<const BF16*>(base) + a.pages[at / kStep] * a.cache.page_stride;
  }

  /// Copies keys, zero-padded to whole steps of head_dim.
  const BF16* copied_keys(const BF16* from, int64_t block) {
    BF16* to = b.keys + block * kStep * deep();
    const int64_t width = even(a.head_dim), whole = width / kStep * kStep, rest = width - whole;
    for (int64_t half = 0; half < kStep / kTile; ++half) {
      const BF16* tiles = from + half * kTile * width;
      BF16* padded = to + half * kTile * deep();
      __builtin_memcpy(padded, tiles, static_cast<size_t>(whole * kTile) * sizeof(BF16));
      if (rest == 0) continue;
      tiles += whole * kTile, padded += whole * kTile;
      __builtin_memset(padded, 0, kTileElements * sizeof(BF16));
      for (int64_t t = 0; t < kTile; ++t)
        __builtin_memcpy(padded + t * kStep, tiles + t * rest, static_cast<size_t>(rest) * sizeof(BF16));
    }
    return to;
  }
  /// Copies values, with zeros at positions that no query row attends to.
  const BF16* copied_values(const BF16* from, int64_t at, BF16* to) {
    __builtin_memcpy(to, from, static_cast<size_t>(a.head_dim * kStep) * sizeof(BF16));
    BF16* spare = to + a.head_dim * kStep;
    __builtin_memset(spare, 0, static_cast<size_t>((wide() - a.head_dim) * kStep) * sizeof(BF16));
    for (int64_t i = 0; !summed && i < kStep; ++i) spare[i] = BF16{0x3f80};  // column of ones: sums the weights
    if (whole_page(at)) return to;
    for (int64_t t = 0; t < kStep; ++t) {
      if (at + t >= span.begin && at + t < span.end) continue;
      for (int64_t d = 0; d < a.head_dim; ++d) to[d * kStep + t] = BF16{};
    }
    return to;
  }

  void open_chunk() {
    Chunk& c = chunks[chunk_turn++ % 2];
    const int64_t width = even(a.head_dim), row = copies_keys() ? deep() : width;
    c.first = position;
    int64_t copied = 0;
    for (int64_t i = 0; i < kBlocks; ++i) {
      const int64_t at = position + i * kStep;
      if (at + kStep <= span.begin || at >= span.end) continue;
      const BF16 *k = page(a.cache.k, at), *v = page(a.cache.v, at);
      if (copies_keys()) k = copied_keys(k, i);
      if (copies_values() || !whole_page(at)) v = copied_values(v, at, b.values + copied++ * wide() * kStep);
      c.keys[2 * i] = k;
      c.keys[2 * i + 1] = k + kTile * row;
      c.values[i] = v;
    }
    pipe.pieces = pipe.piece_at = 0;
    pipe.piece_bytes = kStep * width * 2;
    for (int64_t at = position + kKvChunk; at < min_i64(span.end, position + 2 * kKvChunk); at += kStep) {
      pipe.wanted[pipe.pieces++] = reinterpret_cast<const char*>(page(a.cache.k, at));
      pipe.wanted[pipe.pieces++] = reinterpret_cast<const char*>(page(a.cache.v, at));
    }
    pipe.bytes_at_once = round_up(pipe.pieces * pipe.piece_bytes / ((end_group - first_group) * kBlocks) + 1, 64);
  }

  /// Finds the next pass with work to do. Returns false at the end.
  bool next(Pass& p) {
    for (; position < span.end; position += kKvChunk, group = first_group) {
      if (group == first_group && span.begin < position + kKvChunk && span.end > position) open_chunk();
      while (group < end_group) {
        const int64_t query_row = group++ * kQueryRows, count = min_i64(kQueryRows, query_rows - query_row);
        const Span low = b.seen[query_row], high = b.seen[query_row + count - 1];
        const int64_t from = max_i64(low.begin, position) - position,
                      to = min_i64(high.end, position + kKvChunk) - position;
        if (from >= to) continue;
        p = {&chunks[(chunk_turn - 1) % 2], query_row, count, from / kStep, (to + kStep - 1) / kStep,
             {high.begin, low.end},         {},        0};
        for (int64_t i = p.begin; i < p.end; ++i) p.weights[i] = b.weights + weight_turn++ % kWeightSlots * kWeights;
        return true;
      }
    }
    return false;
  }
  bool next_copies() const {
    return group == end_group && position + kKvChunk < span.end && copies(position + kKvChunk);
  }

  /// Sets masked scores at positions [at, at + 16) to -inf.
  [[gnu::noinline]] void hide(const Pass& p, int64_t at, float* scores) const {
    for (int64_t t = 0; t < kTile; ++t) {
      for (int64_t l = 0; l < kQueryRows; ++l) {
        const Span s = b.seen[p.query_row + l];
        float& score = scores[t * kQueryRows + l];
        score = at + t >= s.begin && at + t < s.end ? score : -__builtin_inff();
      }
    }
  }
  REDLINE_INLINE void hide_some(const Pass& p, int64_t block, int64_t i, float* scores) const {
    const int64_t at = p.chunk->first + block * kStep + i * kTile;
    if (at < p.common_positions.begin || at + kTile > p.common_positions.end) hide(p, at, scores + i * kScores / 2);
  }

  REDLINE_INLINE void cap_some(int64_t i, float* scores) const {
    if (a.soft_cap > 0) cap_scores(scores + i * kScores / 2, kScores / 2, a.soft_cap * (kLog2E / kScoreUnit));
  }

  void score(const Pass& p, int64_t from, int64_t to) {
    pipe.score_blocks(
        b.q + p.query_row * deep(), *p.chunk, from, to,
        [&](int64_t) __attribute__((always_inline)) {
          pipe.finish_jobs(2 * (score_turn - kSlots + 1));  // jobs that still read this buffer
          return b.scores + score_turn++ % kSlots * kScores;
        },
        [&](int64_t block, int64_t i, float* scores) __attribute__((always_inline)) {
          cap_some(i, scores);
          hide_some(p, block, i, scores);
          Reference& reference = b.reference[p.query_row / kQueryRows];
          if (reference.has_no_score) find_tops(p.query_row, scores + i * kScores / 2, false);
          pipe.queue.add({scores + i * kScores / 2, p.weights[block] + i * kWeights / 2, &reference});
        });
  }

  float* sums_of(int64_t query_row) const { return b.sums + query_row * wide(); }
  void clear_sums(int64_t query_row) const {
    for (float& total : b.reference[query_row / kQueryRows].total) total = 0.0f;
    for (int64_t i = 0; i < kQueryRows * wide(); i += kWidth) store(sums_of(query_row) + i, zero_f32(), Full{});
  }
  const float* totals_of(int64_t query_row) const {
    return summed ? b.reference[query_row / kQueryRows].total : sums_of(query_row) + a.head_dim * kQueryRows;
  }

  /// Computes all passes of groups [from, to) of 32 query rows.
  void sweep(int64_t from, int64_t to) {
    first_group = group = from, end_group = to;
    position = span.begin / kKvChunk * kKvChunk;
    Pass now, then;
    int64_t done = 0;  // blocks of `now` already scored
    for (bool more = next(now); more;) {
      score(now, now.begin + done, now.end);
      now.last_job = pipe.queue.put;
      const bool early = !next_copies();
      done = 0;
      if (early && (more = next(then))) {
        done = min_i64(kAhead, then.end - then.begin);
        score(then, then.begin, then.begin + done);
      }
      pipe.finish_jobs(now.last_job);
      pipe.add_values(now, sums_of(now.query_row), sums_of(early && more ? then.query_row : now.query_row));
      if (!early) more = next(then);
      now = then;
    }
  }

  /// Recomputes a group in which a reference was too low, with the true maximum for those query rows. The other rows
  /// get the same bits as before.
  void mend(int64_t g) {
    const int64_t query_row = g * kQueryRows;
    bool bad[kQueryRows], any = false;
    float before[kQueryRows];
    for (int64_t l = 0; l < kQueryRows; ++l) {
      before[l] = b.top[query_row + l];
      any = any | (bad[l] = before[l] != -__builtin_inff() && !(totals_of(query_row)[l] <= kMaxTotal));
    }
    if (!any) return;
    first_group = group = g, end_group = g + 1;
    position = span.begin / kKvChunk * kKvChunk;
    for (Pass p; next(p);) {
      pipe.score_blocks(
          b.q + p.query_row * deep(), *p.chunk, p.begin, p.end, [&](int64_t) { return b.scores; },
          [&](int64_t block, int64_t i, float* scores) {
            cap_some(i, scores);
            hide_some(p, block, i, scores);
            find_tops(query_row, scores + i * kScores / 2, true);
          });
    }
    for (int64_t l = 0; l < kQueryRows; ++l)
      if (!bad[l]) b.top[query_row + l] = before[l];
    set_references(g);
    clear_sums(query_row);
    sweep(g, g + 1);
  }

  void write_lines() {
    alignas(64) float scale[kQueryRows];
    for (int64_t g = 0; g < groups(); ++g) {
      const int64_t query_row = g * kQueryRows, count = min_i64(kQueryRows, query_rows - query_row);
      const float* total = totals_of(query_row);
      if (a.partials != nullptr) {
        const auto row = [&](int64_t i) {
          return a.partials + (first + query_row + i) * attention_partial_floats(a.head_dim);
        };
        write_rows(sums_of(query_row), nullptr, a.head_dim, count, row);
        for (int64_t l = 0; l < count; ++l) {
          const float top = total[l] == 0.0f ? -__builtin_inff() : -b.reference[g].exact[l] * kLn2;
          store_tail({row(l), top, total[l]}, a.head_dim);
        }
        continue;
      }
      for (int64_t l = 0; l < kQueryRows; ++l) scale[l] = total[l] == 0.0f ? 0.0f : 1.0f / total[l];
      for (int64_t l = 0; l < count && a.sinks != nullptr; ++l) {
        const float sink = a.sinks[(first + query_row + l) % a.group];
        scale[l] = 1.0f / (total[l] + exp_f32(sink + b.reference[g].exact[l] * kLn2));
      }
      write_rows(sums_of(query_row), scale, a.head_dim, count, [&](int64_t i) {
        const int64_t at = first + query_row + i;
        return a.y + at / a.group * a.y_stride + at % a.group * a.head_dim;
      });
    }
  }

  void run() {
    load_queries();
    sweep(0, groups());
    for (int64_t g = 0; g < groups(); ++g) mend(g);
    write_lines();
  }
};

template <int pairs, bool summed, class Unit>
void attend(Unit& unit, const AttentionArgs& a) {
  const int64_t steps = round_up(a.head_dim, kStep) / kStep, columns = round_up(a.head_dim, kTile) / kTile;
  const int64_t deep = steps * kStep, wide = columns * kTile;
  char* free = static_cast<char*>(a.scratch);
  Buffers b;
  b.scores = take<float>(free, kSlots * kScores);
  b.weights = take<int32_t>(free, kWeightSlots * kWeights);
  b.keys = take<BF16>(free, a.head_dim % kStep != 0 ? kKvChunk * deep : 0);
  b.values = take<BF16>(free, (a.head_dim % kTile != 0 ? kKvChunk : 2 * kStep) * wide);
  const int64_t left = kScratchBytes - (free - static_cast<char*>(a.scratch)) - 512;
  const int64_t per_query_row =
      deep * 2 + wide * 4 + 4 + static_cast<int64_t>(sizeof(Span) + 8 + sizeof(Reference) / kQueryRows);
  const int64_t most = left / per_query_row / kQueryRows * kQueryRows, num_query_rows = a.rows * a.group;
  b.q = take<BF16>(free, most * deep);
  b.sums = take<float>(free, most * wide);
  b.top = take<float>(free, most);
  b.reference = take<Reference>(free, most / kQueryRows);
  b.seen = take<Span>(free, most);
  b.visible_positions = take<int64_t>(free, most);
  for (int64_t first = 0; first < num_query_rows; first += most) {
    const int64_t query_rows = min_i64(most, num_query_rows - first);
    // Rows are in order of position: the first query row has the earliest visible position, the last one the latest.
    const Span span = {visible(a, first).begin, visible(a, first + query_rows - 1).end};
    Call<Unit, pairs, summed> call = {a, b, {unit, a.head_dim, steps, columns}, first, query_rows, span};
    call.run();
  }
}

/// Computes attention; with partials, one call per chunk.
template <int pairs, class Unit>
void attend_in_parts(Unit& unit, AttentionArgs a) {
  const auto attend_one = [&] {
    if (Unit::kIsDots || a.head_dim % kTile == 0) return attend<pairs, true>(unit, a);
    if constexpr (!Unit::kIsDots) attend<pairs, false>(unit, a);
  };
  if (a.partials == nullptr) return attend_one();
  const int64_t end = a.kv_end, size = a.rows * a.group * attention_partial_floats(a.head_dim);
  for (; a.kv_begin < end; a.kv_begin += kKvChunk, a.partials += size) {
    a.kv_end = min_i64(a.kv_begin + kKvChunk, end);
    attend_one();
  }
}

}  // namespace bf16_tiled

/// Computes attention over bfloat16 pages.
template <class Unit>
void attention_by_bf16_tiles(Unit& unit, const AttentionArgs& a) {
  // The number of pairs is chosen so that a job, 8 pairs of positions, fits into half the steps of head_dim.
  if constexpr (!Unit::kIsDots) {
    if (a.head_dim <= 96) return bf16_tiled::attend_in_parts<2>(unit, a);
  }
  bf16_tiled::attend_in_parts<1>(unit, a);
}

}  // namespace redline::REDLINE_ISA_NS
