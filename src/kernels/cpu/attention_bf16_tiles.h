// Attention over pages of bfloat16 by bfloat16 tile products: queries, keys, values and weights have 8 bits of
// mantissa, sums are float32. For pictures, where thousands of lines meet thousands of keys.
//
// Products are transposed: tiles of scores are [16 keys][16 lines] = keys . queries, tiles of sums [16 of head_dim][16
// lines] = values . weights. So a lane is a line in all that vectors do: sums of weights and the rescaling of a line
// cross no lanes, and two rows of scores become one row of bfloat16 weights in tile order by a shift and a blend. Keys
// and values are read where kv_append put them (KvHeadView); what is not whole tiles or not seen whole is copied first.
//
// A pass is 32 lines over one chunk of positions: scores, weights, weights . values. attention_bf16_pipeline.h keeps
// the tile unit and the vectors busy at a time; the first blocks of the next pass are scored before this one's values,
// so that there are scores to work on meanwhile.
//
// No maximum is looked for: weights are 2^score, which floating point carries as well as 2^(score - maximum), in
// bfloat16 too, wherever the maximum lies. The sum of a line's weights over a chunk tells when that fails: if it is
// not within 2^+-100 the chunk is done again for that line with the maximum of all that it has seen as the reference.
// Sums of weights . values stay in tiles from block to block and go through memory between chunks only. So, unlike
// other kernels', partials of chunks add up to a whole call only within rounding; no network of pictures asks for any.
//
// Error beyond that of attention.inc: scale q is rounded to bfloat16, which moves scores by up to 2^-9 scale |q| |k|;
// weights are rounded to bfloat16, 2^-9 each, but the sum that divides is of the rounded ones; 7.5e-5 for the
// exponential (docs/numerics.md). A line has the same bits whatever other lines are in the call. Positions that no line
// of the call sees cannot reach it; a NaN or infinite v that one line of the call sees may reach another of the same
// 32.
#pragma once

#include "kernels/cpu/attention_bf16_pipeline.h"

namespace redline::REDLINE_ISA_NS {
namespace bf16_tiled {

/// Sums of weights beyond these mean that 0 is no reference for a line.
constexpr float kLeastTotal = 0x1p-100f, kMostTotal = 0x1p100f;
constexpr float kLog2E = 1.44269504f;

/// The scratch of one call, cut for its head_dim.
struct Buffers {
  BF16* q;           ///< [32 lines][step of head_dim] of kQueries, scaled by log2(e) scale
  float* sums;       ///< of all chunks, of one for partials: [32 lines][16 of head_dim][16][32 lines]
  float* reference;  ///< of all chunks, [lines]: -inf before the first

  float* total;      ///< [lines]
  Span* seen;        ///< [lines]
  float* scores;     ///< kSlots and a spare one
  int32_t* weights;  ///< kWeightSlots and a spare one
  float* totals;     ///< three of [kLines]
  BF16* keys;        ///< copies of a chunk
  BF16* values;
};

/// [16 of head_dim][kLines] to rows of lines: `width` elements for `count` lines, times scale[line] if given.
template <class Row>
REDLINE_INLINE void write_rows(const float* tile, const float* scale, int64_t width, int64_t count, Row&& row) {
  for (int64_t l = 0; l < count; l += kWidth) {
    for (int64_t d = 0; d < width; d += kWidth) {
      VecF32 block[kWidth];
      for (int i = 0; i < kWidth; ++i) {
        block[i] = load(tile + (d + i) * kLines + l, Full{});
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

template <class T>
REDLINE_INLINE T* take(char*& from, int64_t count) {
  char* at = from;
  from += round_up(count * static_cast<int64_t>(sizeof(T)), 64);
  return reinterpret_cast<T*>(at);
}

/// One call over as many lines as scratch holds.
template <class Unit, int pairs>
struct Call {
  const AttentionArgs& a;
  const Buffers& b;
  Pipeline<Unit, pairs> pipe;
  int64_t first, lines;  ///< of the call
  Span span;             ///< positions that any of them sees
  int64_t position, end;
  int64_t group = 0;  ///< of 32 lines, the next pass
  Chunk chunks[2];
  int64_t chunk_turn = 0, score_turn = 0, weight_turn = 0, pass_turn = 0;

  int64_t groups() const { return (lines + kLines - 1) / kLines; }
  int64_t deep() const { return pipe.steps * kStep; }
  int64_t wide() const { return pipe.columns * kTile; }

  void load_queries() {
    alignas(64) BF16 words[kTile * kStep];
    for (int64_t l = 0; l < round_up(lines, kLines); l += kTile) {
      for (int64_t s = 0; s < pipe.steps; ++s) {
        const int64_t width = min_i64(kStep, a.head_dim - s * kStep);
        for (int64_t i = 0; i < kTile; ++i) {
          for (int64_t d = 0; d < kStep; d += kWidth) store(words + i * kStep + d, zero_f32(), Full{});
          if (l + i >= lines) continue;
          const int64_t line = first + l + i;
          const float* q = a.q + line / a.group * a.q_stride + line % a.group * a.head_dim + s * kStep;
          for_lanes(width, [&](int64_t d, auto lanes) {
            store(words + i * kStep + d, load(q + d, lanes) * set1(a.scale * kLog2E), Full{});
          });
        }
        // Pairs of head_dim of one line are a word; a row is one pair of all lines.
        const auto* from = reinterpret_cast<const float*>(words);
        auto* to = reinterpret_cast<float*>(b.q + l / kLines * deep() * kLines + s * kQueries) + l % kLines;
        for (int64_t i = 0; i < kTile; i += kWidth) {
          for (int64_t d = 0; d < kTile; d += kWidth) {
            VecF32 block[kWidth];
            for (int j = 0; j < kWidth; ++j) block[j] = load(from + (i + j) * kTile + d, Full{});
            transpose(block);
            for (int j = 0; j < kWidth; ++j) store(to + (d + j) * kLines + i, block[j], Full{});
          }
        }
      }
    }
    for (int64_t l = 0; l < round_up(lines, kLines); ++l) {
      b.seen[l] = visible(a, first + min_i64(l, lines - 1));
      b.reference[l] = -__builtin_inff();
      b.total[l] = 0.0f;
    }
    for (int64_t g = 0; g < groups(); ++g) clear_sums(g * kLines);
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

  /// Keys as they are, with zeros up to whole steps of head_dim.
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
  /// Values with zeros where nobody may see them.
  const BF16* copied_values(const BF16* from, int64_t at, BF16* to) {
    __builtin_memcpy(to, from, static_cast<size_t>(a.head_dim * kStep) * sizeof(BF16));
    __builtin_memset(to + a.head_dim * kStep, 0, static_cast<size_t>((wide() - a.head_dim) * kStep) * sizeof(BF16));
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
    pipe.bytes_at_once = round_up(pipe.pieces * pipe.piece_bytes / (groups() * kBlocks) + 1, 64);
  }

  /// The next pass that has anything to do; false: none is left.
  bool next(Pass& p) {
    for (; position < end; position += kKvChunk, group = 0) {
      if (group == 0 && span.begin < position + kKvChunk && span.end > position) open_chunk();
      while (group < groups()) {
        const int64_t line = group++ * kLines, count = min_i64(kLines, lines - line);
        const Span low = b.seen[line], high = b.seen[line + count - 1];
        const int64_t from = max_i64(low.begin, position) - position,
                      to = min_i64(high.end, position + kKvChunk) - position;
        if (from >= to) {
          if (a.partials != nullptr) write_tails(line, count, position, nullptr, nullptr);
          continue;
        }
        p = {&chunks[(chunk_turn - 1) % 2],
             line,
             count,
             from / kStep,
             (to + kStep - 1) / kStep,
             {high.begin, low.end},
             {},
             b.totals + pass_turn++ % 2 * kLines,
             0};
        for (int64_t i = p.begin; i < p.end; ++i) p.weights[i] = b.weights + weight_turn++ % kWeightSlots * kWeights;
        for (int64_t l = 0; l < kLines; ++l) p.totals[l] = 0.0f;
        return true;
      }
    }
    return false;
  }
  bool next_copies() const { return group == groups() && position + kKvChunk < end && copies(position + kKvChunk); }

  /// Scores of positions [at, at + 16) that a line is blind to become -inf.
  [[gnu::noinline]] void hide(const Pass& p, int64_t at, float* scores) const {
    for (int64_t t = 0; t < kTile; ++t) {
      for (int64_t l = 0; l < kLines; ++l) {
        const Span s = b.seen[p.line + l];
        float& score = scores[t * kLines + l];
        score = at + t >= s.begin && at + t < s.end ? score : -__builtin_inff();
      }
    }
  }
  REDLINE_INLINE void hide_some(const Pass& p, int64_t block, int64_t i, float* scores) const {
    const int64_t at = p.chunk->first + block * kStep + i * kTile;
    if (at < p.all_see.begin || at + kTile > p.all_see.end) hide(p, at, scores + i * kScores / 2);
  }

  void score(const Pass& p, int64_t from, int64_t to) {
    pipe.score_blocks(
        b.q + p.line * deep(), *p.chunk, from, to,
        [&](int64_t) __attribute__((always_inline)) {
          pipe.finish_jobs(2 * (score_turn - kSlots + 1));  // those of the last block there
          return b.scores + score_turn++ % kSlots * kScores;
        },
        [&](int64_t block, int64_t i, float* scores) __attribute__((always_inline)) {
          hide_some(p, block, i, scores);
          pipe.queue.add({scores + i * kScores / 2, p.weights[block] + i * kWeights / 2, p.totals});
        });
  }

  float* sums_of(int64_t line) const { return b.sums + line * wide(); }
  void clear_sums(int64_t line) const {
    for (int64_t i = 0; i < kLines * wide(); i += kWidth) store(sums_of(line) + i, zero_f32(), Full{});
  }
  /// `next` is the line of the pass after it.
  void values(const Pass& p, int64_t next) {
    pipe.add_values(p, sums_of(p.line), sums_of(next));
    if (a.partials == nullptr) return;
    write_rows(sums_of(p.line), nullptr, a.head_dim, p.count,
               [&](int64_t i) { return partial_line(p.line + i, p.chunk->first); });
    clear_sums(p.line);
  }

  float* partial_line(int64_t line, int64_t at) const {
    return a.partials +
           ((at - a.kv_begin) / kKvChunk * a.rows * a.group + first + line) * attention_partial_floats(a.head_dim);
  }
  void write_tails(int64_t line, int64_t count, int64_t at, const float* top, const float* total) const {
    for (int64_t l = 0; l < count; ++l)
      store_tail(
          {partial_line(line + l, at), top != nullptr ? top[l] : -__builtin_inff(), total != nullptr ? total[l] : 0.0f},
          a.head_dim);
  }

  static bool has_moved(float reference) { return reference != 0.0f && reference != -__builtin_inff(); }
  /// The weights of the pass are there: their sums are added to those of the lines, and where 0 cannot be the reference
  /// of a line another is found.
  [[gnu::noinline]] void finish_weights(const Pass& p) {
    float* total = b.total + p.line;
    float* reference = b.reference + p.line;
    bool good = true;
    for (int64_t l = 0; l < kLines; ++l)
      good = good & (p.totals[l] >= kLeastTotal) & (p.totals[l] <= kMostTotal) & !has_moved(reference[l]);
    if (a.partials != nullptr) {
      alignas(64) float top[kLines] = {};
      if (!good) refer(p, top);
      for (float& t : top) t *= kLn2;
      return write_tails(p.line, p.count, p.chunk->first, top, p.totals);
    }
    if (good) {
      for (int64_t l = 0; l < kLines; ++l) reference[l] = 0.0f, total[l] += p.totals[l];
      return;
    }
    alignas(64) float top[kLines] = {}, scale[kLines];
    refer(p, top);
    for (int64_t l = 0; l < kLines; ++l) {
      scale[l] = 1.0f;
      if (top[l] == -__builtin_inff()) continue;  // the line saw nothing
      if (reference[l] != -__builtin_inff()) scale[l] = exp_f32((reference[l] - top[l]) * kLn2);
      reference[l] = top[l];
      total[l] = total[l] * scale[l] + p.totals[l];
    }
    float* sums = sums_of(p.line);
    for (int64_t i = 0; i < kLines * wide(); i += kWidth)
      store(sums + i, load(sums + i, Full{}) * load(scale + i % kLines, Full{}), Full{});
  }

  /// The true maximum of what a line has seen becomes the reference where 0 is none or has not been; `top` is the
  /// reference, -inf where the pass gives nothing. Weights for partials know of no other pass.
  void refer(const Pass& p, float* top) {
    float* scores = b.scores + kSlots * kScores;
    int32_t* weights = b.weights + kWeightSlots * kWeights;
    float* totals = b.totals + 2 * kLines;
    bool bad[kLines];
    alignas(64) float reference[kLines];
    for (int64_t l = 0; l < kLines; ++l) {
      const Span s = b.seen[p.line + l];
      const bool sees = max_i64(s.begin, p.chunk->first) < min_i64(s.end, p.chunk->first + kKvChunk);
      const float before = a.partials != nullptr ? -__builtin_inff() : b.reference[p.line + l];
      bad[l] = sees && (has_moved(before) || !(p.totals[l] >= kLeastTotal && p.totals[l] <= kMostTotal));
      reference[l] = before;
      totals[l] = 0.0f;
      if (!sees) top[l] = -__builtin_inff();
    }
    const auto each_block = [&](auto&& body) {
      for (int64_t block = p.begin; block < p.end; ++block) {
        pipe.score_blocks(
            b.q + p.line * deep(), *p.chunk, block, block + 1, [&](int64_t) { return scores; },
            [&](int64_t, int64_t i, float*) { hide_some(p, block, i, scores); });
        body(block);
      }
    };
    each_block([&](int64_t) {
      for (int64_t i = 0; i < kScores; ++i) reference[i % kLines] = max_f32(scores[i], reference[i % kLines]);
    });
    for (float& r : reference) r = r == -__builtin_inff() ? 0.0f : r;
    const Exponential exponential;
    Totals sum;
    sum.load_from(totals);
    each_block([&](int64_t block) {
      for (int64_t i = 0; i < kStep / 2; ++i)
        weigh(exponential, scores + 2 * i * kLines, reference, weights + i * kLines, sum);
      for (int64_t i = 0; i < kWeights; ++i)
        if (bad[i % kLines]) p.weights[block][i] = weights[i];
    });
    sum.store_to(totals);
    for (int64_t l = 0; l < kLines; ++l) {
      if (!bad[l]) continue;
      p.totals[l] = totals[l];
      top[l] = totals[l] == 0.0f ? -__builtin_inff() : reference[l];  // every score was -inf
    }
  }

  void write_lines() {
    alignas(64) float scale[kLines];
    for (int64_t g = 0; g < groups(); ++g) {
      const int64_t line = g * kLines;
      for (int64_t l = 0; l < kLines; ++l) scale[l] = 1.0f / b.total[line + l];
      write_rows(sums_of(line), scale, a.head_dim, min_i64(kLines, lines - line), [&](int64_t i) {
        const int64_t at = first + line + i;
        return a.y + at / a.group * a.y_stride + at % a.group * a.head_dim;
      });
    }
  }

  void run() {
    load_queries();
    Pass now, then;
    int64_t done = 0;  // blocks of `now` that are scored
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
      finish_weights(now);
      values(now, early && more ? then.line : now.line);
      if (!early) more = next(then);
      now = then;
    }
    if (a.partials == nullptr) write_lines();
  }
};

template <int pairs, class Unit>
void attend(Unit& unit, const AttentionArgs& a) {
  const int64_t steps = round_up(a.head_dim, kStep) / kStep, columns = round_up(a.head_dim, kTile) / kTile;
  const int64_t deep = steps * kStep, wide = columns * kTile;
  char* free = static_cast<char*>(a.scratch);
  Buffers b;
  b.scores = take<float>(free, (kSlots + 1) * kScores);
  b.weights = take<int32_t>(free, (kWeightSlots + 1) * kWeights);
  b.totals = take<float>(free, 3 * kLines);
  b.keys = take<BF16>(free, a.head_dim % kStep != 0 ? kKvChunk * deep : 0);
  b.values = take<BF16>(free, (a.head_dim % kTile != 0 ? kKvChunk : 2 * kStep) * wide);
  const int64_t left = kScratchBytes - (free - static_cast<char*>(a.scratch)) - 512;
  const int64_t per_line = deep * 2 + wide * 4 + 8 + static_cast<int64_t>(sizeof(Span));
  const int64_t most = left / per_line / kLines * kLines, num_lines = a.rows * a.group;
  b.q = take<BF16>(free, most * deep);
  b.sums = take<float>(free, most * wide);
  b.reference = take<float>(free, most);
  b.total = take<float>(free, most);
  b.seen = take<Span>(free, most);
  for (int64_t first = 0; first < num_lines; first += most) {
    const int64_t lines = min_i64(most, num_lines - first);
    // Rows are in order of position, so the first line sees the earliest one and the last the latest.
    const Span span = {visible(a, first).begin, visible(a, first + lines - 1).end};
    const bool parts = a.partials != nullptr;
    Call<Unit, pairs> call = {a,
                              b,
                              {unit, steps, columns},
                              first,
                              lines,
                              span,
                              parts ? a.kv_begin : span.begin / kKvChunk * kKvChunk,
                              parts ? a.kv_end : span.end};
    call.run();
  }
}

}  // namespace bf16_tiled

/// Pages of kBF16.
template <class Unit>
void attention_by_bf16_tiles(Unit& unit, const AttentionArgs& a) {
  // A job, 8 pairs of positions, in half the steps of head_dim.
  if (a.head_dim <= 96) bf16_tiled::attend<2>(unit, a);
  else bf16_tiled::attend<1>(unit, a);
}

}  // namespace redline::REDLINE_ISA_NS
