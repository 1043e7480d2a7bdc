// Attention over the paged cache. A page of a state has, for keys and for values, [heads][kKvPageTokens][head_dim
// rounded up to 2], each row of a token dense.
//
// A warp computes one query row: a token and a head. Its lanes are the 32 tokens of a page for the scores, then
// elements of head_dim for the sums. Chunks of kKvChunk positions are summed separately with an online softmax and
// folded in order of position, so a query row has the same bits whether or not the plan has split its positions.
#pragma once

#include "kernels/tiles/kernel.h"
#include "tensor/kv_page.h"

namespace redline::tiles {

/// The location of the heads of a state in a page of its group.
struct KvAddress {
  int32_t group;  ///< index in StepTables::groups
  int32_t width;  ///< elements of a row
  int64_t keys, values, head_bytes;
  KvFormat format;
};

/// Loads elements of the cache as float32.
TILE_FN Lanes<float> load_kv(KvFormat format, const uint8_t* from, const Lanes<int>& index, const Lanes<bool>& mask,
                             Warp& w) {
  if (format == KvFormat::kF32) return w.load(reinterpret_cast<const float*>(from), index, mask);
  const Lanes<uint32_t> bits = convert<uint32_t>(w.load(reinterpret_cast<const uint16_t*>(from), index, mask));
  return format == KvFormat::kF16 ? f16_to_float(bits) : bf16_to_float(bits);
}

/// Appends keys and values of the step's tokens.
struct KvAppend {
  struct Args {
    const float* k;
    const float* v;
    int32_t num_heads, head_dim;
    KvAddress cache;
  };
  static constexpr bool kLoads = false, kLoaderWaits = false;
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables& step, Warp& w, RingPosition&) {
    const StateTables& state = step.groups[a.cache.group];
    const int query_rows = 2 * a.num_heads, all = (tile.row_end - tile.row_begin) * query_rows;
    for (int i = w.index(); i < all; i += kConsumerWarps) {
      const int row = tile.row_begin + i / query_rows, head = i % query_rows / 2;
      const bool is_key = i % 2 == 0;
      const int32_t slot = w.load_uniform(state.slots + row);
      const float* from = (is_key ? a.k : a.v) + (int64_t{row} * a.num_heads + head) * a.head_dim;
      uint8_t* to = state.memory + slot / kKvPageTokens * state.page_bytes + (is_key ? a.cache.keys : a.cache.values) +
                    head * a.cache.head_bytes + slot % kKvPageTokens * a.cache.width * kv_element_bytes(a.cache.format);
      for (int d = 0; d < a.head_dim; d += kWarpLanes) {
        const Lanes<int> at = w.lane() + d;
        const Lanes<bool> mask = at < Lanes<int>(a.head_dim);
        const Lanes<float> x = w.load(from, at, mask);
        if (a.cache.format == KvFormat::kF32) {
          w.store(reinterpret_cast<float*>(to), at, x, mask);
        } else {
          const Lanes<uint32_t> bits = a.cache.format == KvFormat::kF16 ? float_to_f16(x) : float_to_bf16(x);
          w.store(reinterpret_cast<uint16_t*>(to), at, convert<uint16_t>(bits), mask);
        }
      }
    }
  }
};

struct AttentionArgs {
  const float* q;
  float* y;
  const float* sinks;   ///< [num_heads] or nullptr
  const float* slopes;  ///< [num_heads], of ALiBi, or nullptr; not for AttentionF16
  int32_t num_heads, num_kv_heads, head_dim;
  int32_t window;  ///< number of visible positions; 0: all
  int32_t chunk;   ///< rows see their own chunk of so many positions; 0: all. Not for AttentionF16
  float scale, soft_cap;
  KvAddress cache;
};

namespace detail {

inline constexpr int kMaxHeadDim = 640, kHeadParts = kMaxHeadDim / kWarpLanes;

/// Returns x a + y b, always with the same rounding.
TILE_FN Lanes<float> fold_of(const Lanes<float>& x, const Lanes<float>& a, const Lanes<float>& y,
                             const Lanes<float>& b) {
  return fma_of(x, a, y * b);
}

/// The partial result of some positions: sums[d] = sum_p e^(score[p] - max) v[p][d]. Lane l of part i holds d = 32 i +
/// l.
struct Partial {
  Lanes<float> sums[kHeadParts];
  Lanes<float> max, total;  ///< equal in all lanes

  /// Calls f(i) for each part of a head. i is constant, so that sums stay in registers.
  template <class F>
  static TILE_FN void each(int parts, const F& f) {
    TILE_UNROLL
    for (int i = 0; i < kHeadParts; ++i)
      if (i < parts) f(i);
  }
  static TILE_FN int parts_of(int head_dim) { return (head_dim + kWarpLanes - 1) / kWarpLanes; }

  /// Clears all parts: a part that a task does not write would keep its register through all tasks of a persistent
  /// step.
  TILE_FN void clear() {
    each(kHeadParts, [&](int i) { sums[i] = 0.0f; });
    max = -INFINITY;
    total = 0.0f;
  }
  /// Adds `part`, of later positions. Adding to an empty result gives the bits of `part`.
  TILE_FN void fold(const Partial& part, int parts) {
    const Lanes<float> top = max_of(max, part.max);
    const Lanes<float> a = exp_or_zero(max, top), b = exp_or_zero(part.max, top);
    total = fold_of(total, a, part.total, b);
    each(parts, [&](int i) { sums[i] = fold_of(sums[i], a, part.sums[i], b); });
    max = top;
  }
  /// Returns e^(x - top), where both may be -inf.
  static TILE_FN Lanes<float> exp_or_zero(const Lanes<float>& x, const Lanes<float>& top) {
    const Lanes<bool> seen = x > Lanes<float>(-INFINITY);
    return select(seen, exp_of(select(seen, x - top, Lanes<float>(0.0f))), Lanes<float>(0.0f));
  }
  /// Stores the result: attention_partial_floats() per query row, max and total after the sums.
  TILE_FN void store(float* to, int head_dim, Warp& w) const {
    each(parts_of(head_dim), [&](int i) {
      const Lanes<int> at = w.lane() + i * kWarpLanes;
      w.store(to, at, sums[i], at < Lanes<int>(head_dim));
    });
    float* last = to + (head_dim + 15) / 16 * 16;
    w.store(last, w.lane(), select(w.lane() == Lanes<int>(0), max, total), w.lane() < Lanes<int>(2));
  }
  TILE_FN void load(const float* from, int head_dim, Warp& w) {
    clear();
    each(parts_of(head_dim), [&](int i) {
      const Lanes<int> at = w.lane() + i * kWarpLanes;
      sums[i] = w.load(from, at, at < Lanes<int>(head_dim));
    });
    const float* last = from + (head_dim + 15) / 16 * 16;
    max = w.load_uniform(last);
    total = w.load_uniform(last + 1);
  }
  TILE_FN void finish(const AttentionArgs& a, int head, float* y, Warp& w) const {
    Lanes<float> divisor = total, factor = 1.0f;
    if (a.sinks) {
      const Lanes<float> sink = w.load_uniform(a.sinks + head), top = max_of(max, sink);
      factor = exp_or_zero(max, top);
      divisor = fold_of(total, factor, Lanes<float>(1.0f), exp_of(sink - top));
    }
    each(parts_of(a.head_dim), [&](int i) {
      const Lanes<int> at = w.lane() + i * kWarpLanes;
      w.store(y, at, sums[i] * factor / divisor, at < Lanes<int>(a.head_dim));
    });
  }
};

/// Computes positions [begin, end) of one chunk for one query row at `row_position`. `slope`: that of ALiBi, or 0.
TILE_FN void attend_chunk(const AttentionArgs& a, const StateTables& state, const int32_t* pages, int kv_head,
                          const float* q, int begin, int end, int row_position, const Lanes<float>& slope, Warp& w,
                          Partial& out) {
  const int parts = (a.head_dim + kWarpLanes - 1) / kWarpLanes;
  out.clear();
  constexpr int kTokens = static_cast<int>(kKvPageTokens);
  static_assert(kTokens == kWarpLanes, "a lane is a token of a page");
  for (int page = begin / kTokens; page * kTokens < end; ++page) {
    const uint8_t* memory = state.memory + w.load_uniform(pages + page) * state.page_bytes;
    const uint8_t* keys = memory + a.cache.keys + kv_head * a.cache.head_bytes;
    const uint8_t* values = memory + a.cache.values + kv_head * a.cache.head_bytes;
    const Lanes<int> position = w.lane() + page * kTokens;
    const Lanes<bool> seen = (position >= Lanes<int>(begin)) & (position < Lanes<int>(end));
    Lanes<float> score = 0.0f;
    for (int d = 0; d < a.head_dim; ++d)
      score = score + load_kv(a.cache.format, keys, w.lane() * a.cache.width + d, seen, w) * w.load_uniform(q + d);
    score = score * a.scale;
    if (a.soft_cap > 0) score = tanh_of(score / a.soft_cap) * a.soft_cap;
    if (a.slopes) score = score + slope * convert<float>(position - row_position);
    score = select(seen, score, Lanes<float>(-INFINITY));
    const Lanes<float> top = max_of(out.max, warp_max(w, score));
    const Lanes<float> old = Partial::exp_or_zero(out.max, top), weight = Partial::exp_or_zero(score, top);
    out.max = top;
    out.total = out.total * old + warp_sum(w, weight);
    Partial::each(parts, [&](int i) { out.sums[i] = out.sums[i] * old; });
    const int first = begin > page * kTokens ? begin - page * kTokens : 0;
    const int last = end - page * kTokens < kTokens ? end - page * kTokens : kTokens;
    for (int t = first; t < last; ++t) {
      const float one = w.broadcast(weight, t);
      Partial::each(parts, [&](int i) {
        const Lanes<int> at = w.lane() + i * kWarpLanes;
        out.sums[i] =
            out.sums[i] + load_kv(a.cache.format, values, at + t * a.cache.width, at < Lanes<int>(a.head_dim), w) * one;
      });
    }
  }
}

}  // namespace detail

/// Computes attention. Task i computes the items that the attention plan assigns to work partition i.
struct Attention {
  using Args = AttentionArgs;
  static constexpr bool kLoads = false, kLoaderWaits = false;
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables& step, Warp& w, RingPosition&) {
    const StateTables& state = step.groups[a.cache.group];
    const int end = w.load_uniform(state.task_begin + tile.index + 1);
    for (int i = w.load_uniform(state.task_begin + tile.index); i < end; ++i) run(a, state, state.tasks[i], w);
  }

 private:
  static TILE_FN void run(const Args& a, const StateTables& state, const AttentionTask& task, Warp& w) {
    const int group = a.num_heads / a.num_kv_heads, query_rows = (task.row_end - task.row_begin) * group;
    const int parts = (a.head_dim + kWarpLanes - 1) / kWarpLanes,
              size = static_cast<int>(attention_partial_floats(a.head_dim));
    const int32_t* pages = state.pages + state.page_begin[task.sequence];
    for (int query_row = w.index(); query_row < query_rows; query_row += kConsumerWarps) {
      const int head = task.kv_head * group + query_row % group;
      const int row = task.is_group ? w.load_uniform(state.group_rows + task.row_begin + query_row / group)
                                    : task.row_begin + query_row / group;
      const int64_t at = (int64_t{row} * a.num_heads + head) * a.head_dim;
      const int position = task.first_position + query_row / group;  // for a group, all of its positions are visible
      const int visible_end = task.is_group || task.kv_end <= position ? task.kv_end : position + 1;
      int visible_begin = a.window > 0 && position - a.window + 1 > 0 ? position - a.window + 1 : 0;
      if (a.chunk > 0 && position / a.chunk * a.chunk > visible_begin) visible_begin = position / a.chunk * a.chunk;
      const Lanes<float> slope = a.slopes ? w.load_uniform(a.slopes + head) : Lanes<float>(0.0f);
      constexpr int kChunk = static_cast<int>(kKvChunk);
      int first_chunk = task.kv_begin / kChunk;
      if (task.split < 0 && visible_begin / kChunk > first_chunk) first_chunk = visible_begin / kChunk;
      detail::Partial all, chunk;
      all.clear();
      chunk.clear();
      for (int c = first_chunk; c * kChunk < (task.split < 0 ? visible_end : task.kv_end); ++c) {
        const int begin = c * kChunk > visible_begin ? c * kChunk : visible_begin;
        const int end = (c + 1) * kChunk < visible_end ? (c + 1) * kChunk : visible_end;
        detail::attend_chunk(a, state, pages, task.kv_head, a.q + at, begin, end, position, slope, w, chunk);
        if (task.split < 0 || task.merges_chunks) all.fold(chunk, parts);
        else
          chunk.store(state.partials + task.partials + (int64_t{c - first_chunk} * query_rows + query_row) * size,
                      a.head_dim, w);
      }
      if (task.split < 0) all.finish(a, head, a.y + at, w);
      else if (task.merges_chunks) all.store(state.partials + task.partials + int64_t{query_row} * size, a.head_dim, w);
    }
  }
};

/// Merges the partial results of rows whose positions were split. Task i merges every n-th of these rows.
struct AttentionMerge {
  using Args = AttentionArgs;
  static constexpr bool kLoads = false, kLoaderWaits = false;
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables& step, Warp& w, RingPosition&) {
    const StateTables& state = step.groups[a.cache.group];
    for (int i = tile.index; i < state.num_parts; i += state.num_partitions) run(a, state, state.parts[i], w);
  }

 private:
  static TILE_FN void run(const Args& a, const StateTables& state, const AttentionPart& part, Warp& w) {
    const int group = a.num_heads / a.num_kv_heads, query_rows = (part.row_end - part.row_begin) * group;
    const int parts = (a.head_dim + kWarpLanes - 1) / kWarpLanes;
    const int64_t size = attention_partial_floats(a.head_dim);
    for (int query_row = w.index(); query_row < query_rows; query_row += kConsumerWarps) {
      detail::Partial all, one;
      all.clear();
      one.clear();
      for (int i = 0; i < part.num_shared; ++i) {
        one.load(state.partials + part.shared + i * part.shared_stride + query_row * size, a.head_dim, w);
        all.fold(one, parts);
      }
      for (int c = 0; c < part.chunks; ++c) {
        one.load(state.partials + part.partials + (int64_t{c} * query_rows + query_row) * size, a.head_dim, w);
        all.fold(one, parts);
      }
      const int head = part.kv_head * group + query_row % group;
      all.finish(a, head, a.y + (int64_t{part.row_begin + query_row / group} * a.num_heads + head) * a.head_dim, w);
    }
  }
};

}  // namespace redline::tiles
