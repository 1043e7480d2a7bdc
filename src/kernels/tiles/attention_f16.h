// Attention over a cache in float16 by tensor cores: the tasks, the arguments and the partial results of attention.h.
//
// Queries and weights are rounded to float16, sums are float32. The warps of a block compute 16 query rows of one head
// of keys together, a chunk of kKvChunk positions at a time. Each warp computes the scores of one page. When all know
// the largest score of a row and the weights of all pages, each computes the sums of some elements of the head. So a
// page is read once for all query heads that share it, and the bits of a row do not depend on the other rows: scores
// that it does not see have weight zero, and chunks are folded as in attention.h. Keys and values must be finite
// (docs/numerics.md): an infinite one makes a NaN of every row of a tile.
#pragma once

#include "kernels/tiles/attention.h"
#include "kernels/tiles/fragment.h"
#include "kernels/tiles/shared_tile.h"

namespace redline::tiles {

struct AttentionF16 {
  using Args = AttentionArgs;  ///< head_dim: a multiple of 16, at most kMaxHead; the format is kF16
  static constexpr bool kLoads = false, kLoaderWaits = false, kUsesShared = true;
  static constexpr int kMaxHead = 256;

  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables& step, Warp& w, RingPosition&) {
    const StateTables& state = step.groups[a.cache.group];
    const int end = w.load_uniform(state.task_begin + tile.index + 1);
    TILE_ROLLED
    for (int i = w.load_uniform(state.task_begin + tile.index); i < end; ++i) {
      const AttentionTask& task = state.tasks[i];
      const int query_rows = (task.row_end - task.row_begin) * (a.num_heads / a.num_kv_heads);
      TILE_ROLLED
      for (int first = 0; first < query_rows; first += kRows) attend(a, state, task, first, query_rows, w);
    }
  }

 private:
  static constexpr int kRows = 16, kPage = static_cast<int>(kKvPageTokens), kChunk = static_cast<int>(kKvChunk);
  static constexpr int kKeyTiles = kPage / 8, kUnits = kMaxHead / 16 / kConsumerWarps;
  static_assert(kChunk == kPage * kConsumerWarps, "a warp has a page of each chunk");
  using Queries = SharedTile<kRows, kMaxHead, 2>;
  using Weights = SharedTile<kRows, kChunk, 2>;
  static constexpr uint32_t kWeights = Queries::kBytes, kMaxima = kWeights + Weights::kBytes;
  static constexpr uint32_t kTotals = kMaxima + kConsumerWarps * kRows * 4;
  static_assert(kTotals + kConsumerWarps * kRows * 4 <= kActivationBytes);

  /// The query rows g and g + 8 of the tile that lane (g, t) holds.
  struct LaneRows {
    Lanes<int> query_row[2], begin[2], end[2];  ///< visible positions of the rows
    Lanes<bool> is_there[2];
  };
  /// The positions that some row of the tile sees, or those of a chunk.
  struct Range {
    int begin, end;
    TILE_FN bool has_page(int first) const { return first < end && first + kPage > begin; }
  };
  /// The sums of a warp. Element 16 u + 2 (2t + c % 2) + j of the head, with u = index + i kConsumerWarps, is c of
  /// sums[i][j].
  struct Sums {
    FragmentC units[kUnits][2];
    Lanes<float> max[2], total[2];

    TILE_FN void clear() {
      TILE_UNROLL
      for (int i = 0; i < kUnits; ++i) units[i][0] = units[i][1] = zero_c();
      TILE_UNROLL
      for (int h = 0; h < 2; ++h) {
        max[h] = -INFINITY;
        total[h] = 0.0f;
      }
    }
    TILE_FN void fold(const Sums& part) {
      Lanes<float> old[2], more[2];
      TILE_UNROLL
      for (int h = 0; h < 2; ++h) {
        const Lanes<float> top = max_of(max[h], part.max[h]);
        old[h] = detail::Partial::exp_or_zero(max[h], top);
        more[h] = detail::Partial::exp_or_zero(part.max[h], top);
        total[h] = detail::fold_of(total[h], old[h], part.total[h], more[h]);
        max[h] = top;
      }
      TILE_UNROLL
      for (int i = 0; i < kUnits; ++i) TILE_UNROLL
      for (int j = 0; j < 2; ++j) TILE_UNROLL
      for (int c = 0; c < 4; ++c)
        units[i][j].c[c] = detail::fold_of(units[i][j].c[c], old[c / 2], part.units[i][j].c[c], more[c / 2]);
    }
    /// Calls f(half, element of the head, sum) for the warp's elements.
    template <class F>
    TILE_FN void each(int head_dim, Warp& w, const F& f) const {
      const Lanes<int> t = fragment_thread(w.lane());
      TILE_UNROLL
      for (int i = 0; i < kUnits; ++i) {
        const int unit = w.index() + i * kConsumerWarps;
        if (16 * unit >= head_dim) continue;
        TILE_UNROLL
        for (int j = 0; j < 2; ++j) TILE_UNROLL
        for (int c = 0; c < 4; ++c) f(c / 2, t * 4 + (16 * unit + 2 * (c % 2) + j), units[i][j].c[c]);
      }
    }
  };

  static TILE_FN int end_of(const AttentionTask& task, int position) {
    return task.is_group || task.kv_end <= position ? task.kv_end : position + 1;
  }
  static TILE_FN int begin_of(const Args& a, int position) {
    return a.window > 0 && position - a.window + 1 > 0 ? position - a.window + 1 : 0;
  }

  static TILE_FN LaneRows lane_rows(const Args& a, const AttentionTask& task, int first, int query_rows, Warp& w) {
    LaneRows rows;
    TILE_UNROLL
    for (int h = 0; h < 2; ++h) {
      const Lanes<int> row = fragment_group(w.lane()) + (first + 8 * h);
      const Lanes<int> next = row / (a.num_heads / a.num_kv_heads) + (task.first_position + 1);
      const Lanes<int> all = task.kv_end;
      rows.query_row[h] = row;
      rows.is_there[h] = row < Lanes<int>(query_rows);
      rows.end[h] = select(Lanes<bool>(task.is_group != 0) | (all < next), all, next);
      rows.end[h] = select(rows.is_there[h], rows.end[h], Lanes<int>(0));
      rows.begin[h] = a.window > 0 ? next - a.window : Lanes<int>(0);
    }
    return rows;
  }

  /// Computes query rows [first, first + kRows) of a task.
  static TILE_FN void attend(const Args& a, const StateTables& state, const AttentionTask& task, int first,
                             int query_rows, Warp& w) {
    const int group = a.num_heads / a.num_kv_heads;
    const int last = first + kRows < query_rows ? first + kRows - 1 : query_rows - 1;
    const Range seen = {begin_of(a, task.first_position + first / group),
                        end_of(task, task.first_position + last / group)};
    int first_chunk = task.kv_begin / kChunk;
    if (task.split < 0 && seen.begin / kChunk > first_chunk) first_chunk = seen.begin / kChunk;
    const bool keeps_chunks = task.split >= 0 && task.merges_chunks == 0;
    const int64_t size = attention_partial_floats(a.head_dim);
    const int32_t* pages = state.pages + state.page_begin[task.sequence];
    const LaneRows rows = lane_rows(a, task, first, query_rows, w);

    w.consumer_sync();  // shared memory is no longer read
    stage_queries(a, state, task, first, last, w);
    w.consumer_sync();
    Sums all, chunk;
    all.clear();
    TILE_ROLLED
    for (int c = first_chunk; c * kChunk < (task.split < 0 ? seen.end : task.kv_end); ++c) {
      const Range range = {c * kChunk > seen.begin ? c * kChunk : seen.begin,
                           (c + 1) * kChunk < seen.end ? (c + 1) * kChunk : seen.end};
      chunk.clear();
      attend_chunk(a, state, pages, task.kv_head, c * kChunk, range, rows, w, chunk);
      if (keeps_chunks)
        store(a, chunk, rows, state.partials + task.partials + int64_t{c - first_chunk} * query_rows * size, w);
      else all.fold(chunk);
    }
    if (task.split < 0) finish(a, state, task, all, rows, w);
    else if (!keeps_chunks) store(a, all, rows, state.partials + task.partials, w);
  }

  static TILE_FN void stage_queries(const Args& a, const StateTables& state, const AttentionTask& task, int first,
                                    int last, Warp& w) {
    const int group = a.num_heads / a.num_kv_heads;
    TILE_ROLLED
    for (int r = w.index(); r < kRows; r += kConsumerWarps) {
      const int query_row = first + r < last ? first + r : last;  // rows past the end are not stored
      const int token = query_row / group, head = task.kv_head * group + query_row % group;
      const int row = task.row_begin + token;
      const float* from =
          a.q +
          (int64_t{task.is_group ? w.load_uniform(state.group_rows + row) : row} * a.num_heads + head) * a.head_dim;
      TILE_ROLLED
      for (int col = 0; col < a.head_dim; col += 2 * kWarpLanes) {
        const Lanes<int> at = w.lane() * 2 + col;
        const Lanes<bool> mask = at < Lanes<int>(a.head_dim);
        w.store_shared(Queries{0}.at(r, at), pack_f16(w.load(from, at, mask), w.load(from, at + 1, mask)), mask);
      }
    }
  }

  /// Computes a chunk that begins at position `begin` and overlaps `range`.
  static TILE_FN void attend_chunk(const Args& a, const StateTables& state, const int32_t* pages, int kv_head,
                                   int begin, const Range& range, const LaneRows& rows, Warp& w, Sums& out) {
    const Lanes<int> g = fragment_group(w.lane()), t = fragment_thread(w.lane());
    const Lanes<bool> is_first = t == Lanes<int>(0);
    const Lanes<uint32_t> own = convert<uint32_t>((g + w.index() * kRows) * 4);
    const int page = begin + w.index() * kPage;
    FragmentC scores[kKeyTiles];
    TILE_UNROLL
    for (int n = 0; n < kKeyTiles; ++n) scores[n] = zero_c();
    if (range.has_page(page))
      multiply_keys(a, head_of(a, state, pages, page, a.cache.keys, kv_head, w), page, range, w, scores);
    TILE_UNROLL
    for (int h = 0; h < 2; ++h) {
      Lanes<float> top = -INFINITY;
      TILE_UNROLL
      for (int n = 0; n < kKeyTiles; ++n) TILE_UNROLL
      for (int e = 0; e < 2; ++e) {
        const Lanes<int> key = t * 2 + (page + 8 * n + e);
        const Lanes<bool> sees = (key >= rows.begin[h]) & (key < rows.end[h]);
        Lanes<float>& score = scores[n].c[2 * h + e];
        score = score * a.scale;
        if (a.soft_cap > 0) score = tanh_of(score / a.soft_cap) * a.soft_cap;
        score = select(sees, score, Lanes<float>(-INFINITY));
        top = max_of(top, score);
      }
      for (int distance = 1; distance < 4; distance *= 2) top = max_of(top, w.shuffle_xor(top, distance));
      w.store_shared(own + (kMaxima + static_cast<uint32_t>(32 * h)), top, is_first);
    }
    w.consumer_sync();
    TILE_UNROLL
    for (int h = 0; h < 2; ++h) {
      const Lanes<uint32_t> of_row = convert<uint32_t>(g * 4) + (kMaxima + static_cast<uint32_t>(32 * h));
      for (int i = 0; i < kConsumerWarps; ++i)
        out.max[h] = max_of(out.max[h], w.load_shared<float>(of_row + static_cast<uint32_t>(i * kRows * 4)));
      Lanes<float> total = 0.0f;
      TILE_UNROLL
      for (int n = 0; n < kKeyTiles; ++n) {
        const Lanes<float> low = detail::Partial::exp_or_zero(scores[n].c[2 * h], out.max[h]);
        const Lanes<float> high = detail::Partial::exp_or_zero(scores[n].c[2 * h + 1], out.max[h]);
        total = total + low + high;
        w.store_shared(Weights{kWeights}.at(g + 8 * h, t * 2 + (w.index() * kPage + 8 * n)), pack_f16(low, high));
      }
      for (int distance = 1; distance < 4; distance *= 2) total = total + w.shuffle_xor(total, distance);
      w.store_shared(own + (kTotals + static_cast<uint32_t>(32 * h)), total, is_first);
    }
    w.consumer_sync();
    TILE_UNROLL
    for (int h = 0; h < 2; ++h) {
      const Lanes<uint32_t> of_row = convert<uint32_t>(g * 4) + (kTotals + static_cast<uint32_t>(32 * h));
      for (int i = 0; i < kConsumerWarps; ++i)
        out.total[h] = out.total[h] + w.load_shared<float>(of_row + static_cast<uint32_t>(i * kRows * 4));
    }
    TILE_ROLLED
    for (int first = begin; first < begin + kChunk; first += kPage)
      if (range.has_page(first))
        multiply_values(a, head_of(a, state, pages, first, a.cache.values, kv_head, w), first, first - begin, range, w,
                        out);
  }

  /// Returns the keys or values of the page that begins at position `first`.
  static TILE_FN const uint8_t* head_of(const Args& a, const StateTables& state, const int32_t* pages, int first,
                                        int64_t offset, int kv_head, Warp& w) {
    return state.memory + w.load_uniform(pages + first / kPage) * state.page_bytes + offset +
           kv_head * a.cache.head_bytes;
  }

  /// Multiplies queries and keys. Lane (g, t) holds elements 4t .. 4t+3 of each 16 of the key g of a tile, and of the
  /// queries.
  static TILE_FN void multiply_keys(const Args& a, const uint8_t* keys, int first, const Range& range, Warp& w,
                                    FragmentC (&scores)[kKeyTiles]) {
    const auto* fours = reinterpret_cast<const uint64_t*>(keys);  // rows are multiples of 32 bytes
    const Lanes<int> g = fragment_group(w.lane()), t = fragment_thread(w.lane());
    TILE_ROLLED
    for (int s = 0; s < a.head_dim; s += 16) {
      const Lanes<uint32_t> low = Queries{0}.at(g, t * 4 + s), high = Queries{0}.at(g + 8, t * 4 + s);
      const FragmentA q = {{w.load_shared<uint32_t>(low), w.load_shared<uint32_t>(high),
                            w.load_shared<uint32_t>(low + 4u), w.load_shared<uint32_t>(high + 4u)}};
      TILE_UNROLL
      for (int n = 0; n < kKeyTiles; ++n) {
        const Lanes<int> key = g + 8 * n;
        const Lanes<bool> mask = key + first < Lanes<int>(range.end);  // later slots are undefined
        const Lanes<uint64_t> four = w.load(fours, key * (a.cache.width / 4) + (t + s / 4), mask);
        mma_f16(w, q, {{convert<uint32_t>(four), convert<uint32_t>(four >> uint64_t{32})}}, scores[n]);
      }
    }
  }

  /// Multiplies weights and values. Lane (g, t) holds elements 2g and 2g + 1 of each 16 of values, of four keys: a tile
  /// has every other element.
  static TILE_FN void multiply_values(const Args& a, const uint8_t* values, int first, int within, const Range& range,
                                      Warp& w, Sums& out) {
    const auto* words = reinterpret_cast<const uint32_t*>(values);
    const Lanes<int> g = fragment_group(w.lane()), t = fragment_thread(w.lane());
    TILE_UNROLL
    for (int k = 0; k < kPage; k += 16) {
      const Weights all{kWeights};
      const Lanes<int> column = t * 2 + (within + k);
      const FragmentA weights = {
          {w.load_shared<uint32_t>(all.at(g, column)), w.load_shared<uint32_t>(all.at(g + 8, column)),
           w.load_shared<uint32_t>(all.at(g, column + 8)), w.load_shared<uint32_t>(all.at(g + 8, column + 8))}};
      TILE_UNROLL
      for (int i = 0; i < kUnits; ++i) {
        const int unit = w.index() + i * kConsumerWarps;
        if (16 * unit >= a.head_dim) continue;
        Lanes<uint32_t> v[4];
        TILE_UNROLL
        for (int e = 0; e < 4; ++e) {
          const Lanes<int> key = t * 2 + (k + e % 2 + 8 * (e / 2));
          v[e] = w.load(words, key * (a.cache.width / 2) + (g + 8 * unit), key + first < Lanes<int>(range.end));
        }
        mma_f16(w, weights, {{(v[0] & 0xffffu) | (v[1] << 16u), (v[2] & 0xffffu) | (v[3] << 16u)}}, out.units[i][0]);
        mma_f16(w, weights, {{(v[0] >> 16u) | (v[1] & 0xffff0000u), (v[2] >> 16u) | (v[3] & 0xffff0000u)}},
                out.units[i][1]);
      }
    }
  }

  /// Stores the results of all rows as Partial::store().
  static TILE_FN void store(const Args& a, const Sums& sums, const LaneRows& rows, float* to, Warp& w) {
    const int64_t size = attention_partial_floats(a.head_dim);
    sums.each(a.head_dim, w, [&](int h, const Lanes<int>& element, const Lanes<float>& sum) {
      w.store(to, convert<int64_t>(rows.query_row[h]) * size + convert<int64_t>(element), sum, rows.is_there[h]);
    });
    float* const last = to + a.head_dim;
    const Lanes<bool> is_one = (fragment_thread(w.lane()) == Lanes<int>(0)) & Lanes<bool>(w.index() == 0);
    TILE_UNROLL
    for (int h = 0; h < 2; ++h) {
      const Lanes<int64_t> at = convert<int64_t>(rows.query_row[h]) * size;
      w.store(last, at, sums.max[h], rows.is_there[h] & is_one);
      w.store(last + 1, at, sums.total[h], rows.is_there[h] & is_one);
    }
  }

  /// Finishes all rows as Partial::finish().
  static TILE_FN void finish(const Args& a, const StateTables& state, const AttentionTask& task, const Sums& sums,
                             const LaneRows& rows, Warp& w) {
    const int group = a.num_heads / a.num_kv_heads;
    Lanes<int64_t> at[2];
    Lanes<float> divisor[2], factor[2];
    TILE_UNROLL
    for (int h = 0; h < 2; ++h) {
      const Lanes<int> token = rows.query_row[h] / group, head = rows.query_row[h] % group + task.kv_head * group;
      Lanes<int> row = token + task.row_begin;
      if (task.is_group) row = w.load(state.group_rows, row, rows.is_there[h]);
      at[h] = (convert<int64_t>(row) * int64_t{a.num_heads} + convert<int64_t>(head)) * int64_t{a.head_dim};
      divisor[h] = sums.total[h];
      factor[h] = 1.0f;
      if (a.sinks) {
        const Lanes<float> sink = w.load(a.sinks, head, rows.is_there[h]), top = max_of(sums.max[h], sink);
        factor[h] = detail::Partial::exp_or_zero(sums.max[h], top);
        divisor[h] = detail::fold_of(divisor[h], factor[h], Lanes<float>(1.0f), exp_of(sink - top));
      }
    }
    sums.each(a.head_dim, w, [&](int h, const Lanes<int>& element, const Lanes<float>& sum) {
      w.store(a.y, at[h] + convert<int64_t>(element), sum * factor[h] / divisor[h], rows.is_there[h]);
    });
  }
};

}  // namespace redline::tiles
