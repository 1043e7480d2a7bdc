// Attention without a cache: pack_kv, joint_attention and relative_bias_attention (graph/ops).
//
// Packed keys are dense float32 rows: the keys of all heads, then their values. A task has rows of queries for one
// head. Keys and values come in chunks of 32 through shared memory, which all warps fill; a warp has four queries at a
// time. Its lanes are the keys of the chunk for the scores, then elements of the head for the sums. Chunks are counted
// from the first key of an item, so a row has the same bits whichever rows share its task.
#pragma once

#include "kernels/tiles/attention.h"
#include "kernels/tiles/fragment.h"
#include "kernels/tiles/shared_tile.h"

namespace redline::tiles {

/// Packs keys and values: for every item, the rows of the first segment, then those of the second.
struct PackKv {
  struct Args {
    const float* k;
    const float* v;
    const float* second_k;  ///< nullptr: one segment
    const float* second_v;
    float* y;
    int32_t cols;                   ///< columns of k and v: all heads
    int32_t tokens, second_tokens;  ///< tokens of an item; indices in StepTables::rows
  };
  static constexpr bool kLoads = false, kLoaderWaits = false;
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables& step, Warp& w, RingPosition&) {
    const int first = step.rows[a.tokens], second = a.second_k ? step.rows[a.second_tokens] : 0, all = first + second;
    const bool is_value = tile.col_begin >= a.cols;
    each_element(tile, w, [&](int row, const Lanes<int>& col, const Lanes<bool>& mask) {
      const int item = row / all, key = row % all;
      const bool in_first = key < first;
      const int64_t from = in_first ? int64_t{item} * first + key : int64_t{item} * second + (key - first);
      const float* keys = in_first ? a.k : a.second_k;
      const float* values = in_first ? a.v : a.second_v;
      const float* x = (is_value ? values - a.cols : keys) + from * a.cols;
      w.store(a.y + int64_t{row} * (2 * a.cols), col, w.load(x, col, mask), mask);
    });
  }
};

struct JointAttention {
  struct Args {
    const float* q;
    const float* k;
    const float* v;          ///< nullptr: v_offset columns after k
    const float* bias;       ///< [2 * max_distance + 1, num_heads] by the distance of key and query; nullptr: no bias
    const int32_t* lengths;  ///< number of unmasked keys of each item; nullptr: all
    /// Sequence s is rows [offsets[s], offsets[s + 1]); nullptr: rows belong to items.
    const int32_t* offsets;
    float* y;
    int32_t num_heads, head_dim, kv_stride, v_offset;
    int32_t tokens, keys;  ///< rows and keys of an item; indices in StepTables::rows
    int32_t sequences;     ///< an index in StepTables::rows
    int32_t max_distance, window, causal;
    float scale;
  };
  static constexpr bool kLoads = false, kLoaderWaits = false, kUsesShared = true;
  /// Maximum number of elements of a head.
  static constexpr int kMaxHead = 512;

  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables& step, Warp& w, RingPosition&) {
    // The number of queries and parts of a head is limited by the registers of a warp.
    if (a.head_dim <= kMaxHead / 2) run<4, kMaxHead / 2 / kWarpLanes>(a, tile, step, w);
    else run<2, kMaxHead / kWarpLanes>(a, tile, step, w);
  }

  // Helpers of both kernels.
  /// Query rows that attend to the same keys.
  struct Item {
    int row_begin, row_end, key_begin, length;
  };
  static TILE_FN Item item_of(const Args& a, const StepTables& step, int row, Warp& w) {
    if (a.offsets) {
      int s = 0;
      while (s + 1 < step.rows[a.sequences] && w.load_uniform(a.offsets + s + 1) <= row) ++s;
      const int begin = w.load_uniform(a.offsets + s), end = w.load_uniform(a.offsets + s + 1);
      return {begin, end > row ? end : row + 1, begin, end - begin};
    }
    const int tokens = step.rows[a.tokens], keys = step.rows[a.keys], item = row / tokens;
    int length = a.lengths ? w.load_uniform(a.lengths + item) : keys;
    if (length > keys) length = keys;
    return {item * tokens, (item + 1) * tokens, item * keys, length < 0 ? 0 : length};
  }

  /// The keys that some of the queries [first, last] of an item see, starting at a multiple of `unit`.
  struct KeyRange {
    int begin, end;
  };
  static TILE_FN KeyRange keys_of(const Args& a, const Item& item, int first, int last, int unit) {
    KeyRange keys = {0, item.length};
    if (a.causal && last + 1 < keys.end) keys.end = last + 1;
    if (a.window > 0) {
      if (last + a.window + 1 < keys.end) keys.end = last + a.window + 1;
      if (first > a.window) keys.begin = (first - a.window) / unit * unit;
    }
    return keys;
  }
  static TILE_FN Lanes<bool> sees(const Args& a, const Lanes<int>& query, const Lanes<int>& key, int key_end) {
    Lanes<bool> seen = key < Lanes<int>(key_end);
    if (a.causal) seen = seen & (key <= query);
    if (a.window > 0) seen = seen & (key <= query + a.window) & (key >= query - a.window);
    return seen;
  }

 private:
  static constexpr int kKeys = kWarpLanes;
  static constexpr uint32_t kRegion = 0;
  static_assert(kKeys * kMaxHead * 4 <= kActivationBytes);

  template <int kRows, int kParts>
  static TILE_FN void run(const Args& a, const TileRange& tile, const StepTables& step, Warp& w) {
    constexpr int kBlockRows = kRows * kConsumerWarps;
    for (int row = tile.row_begin; row < tile.row_end;) {
      const Item item = item_of(a, step, row, w);
      const int end = item.row_end < tile.row_end ? item.row_end : tile.row_end;
      for (; row < end; row += kBlockRows)
        attend<kRows, kParts>(a, item, tile.col_begin / a.head_dim, row,
                              row + kBlockRows < end ? row + kBlockRows : end, w);
      row = end;
    }
  }

  /// Returns the address of element `col` of key `key` of the chunk. Columns are permuted by the key within 32, so that
  /// neither lanes of different keys nor lanes of different columns conflict in a bank.
  static TILE_FN Lanes<uint32_t> place(uint32_t base, int stride, const Lanes<int>& key, const Lanes<int>& col) {
    return convert<uint32_t>((key * stride + (col ^ key)) * 4) + base;
  }
  static TILE_FN void stage(const float* from, int64_t from_stride, int keys, int head_dim, uint32_t base, Warp& w) {
    const int stride = (head_dim + kWarpLanes - 1) / kWarpLanes * kWarpLanes;
    TILE_ROLLED
    for (int key = w.index(); key < keys; key += kConsumerWarps) TILE_ROLLED
    for (int col = 0; col < head_dim; col += kWarpLanes) {
      const Lanes<int> at = w.lane() + col;
      const Lanes<bool> mask = at < Lanes<int>(head_dim);
      w.store_shared(place(base, stride, key, at), w.load(from + key * from_stride, at, mask), mask);
    }
  }

  /// Computes rows [begin, end) of an item, at most kRows per warp.
  template <int kRows, int kParts>
  static TILE_FN void attend(const Args& a, const Item& item, int head, int begin, int end, Warp& w) {
    const int parts = (a.head_dim + kWarpLanes - 1) / kWarpLanes, stride = parts * kWarpLanes;
    const int64_t y_stride = int64_t{a.num_heads} * a.head_dim, first_col = int64_t{head} * a.head_dim;
    const float* k = a.k + int64_t{item.key_begin} * a.kv_stride + first_col;
    const float* v = (a.v ? a.v : a.k + a.v_offset) + int64_t{item.key_begin} * a.kv_stride + first_col;
    const bool holds_both = 2 * kKeys * stride * 4 <= kActivationBytes;
    const uint32_t values = kRegion + static_cast<uint32_t>(holds_both ? kKeys * stride * 4 : 0);
    const int first_query = begin - item.row_begin;
    const auto [key_begin, key_end] = keys_of(a, item, first_query, end - 1 - item.row_begin, kKeys);

    const int row = begin + w.index() * kRows;
    Lanes<float> q[kRows][kParts], sums[kRows][kParts], most[kRows], total[kRows];
    TILE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      most[r] = -INFINITY;
      total[r] = 0.0f;
      TILE_UNROLL
      for (int i = 0; i < kParts; ++i) {
        if (i >= parts) continue;
        const Lanes<int> at = w.lane() + i * kWarpLanes;
        const Lanes<bool> mask = (at < Lanes<int>(a.head_dim)) & Lanes<bool>(row + r < end);
        q[r][i] = w.load(a.q + (row + r) * y_stride + first_col, at, mask);
        sums[r][i] = 0.0f;
      }
    }

    for (int first = key_begin; first < key_end; first += kKeys) {
      const int keys = key_end - first < kKeys ? key_end - first : kKeys;
      w.consumer_sync();  // the previous chunk is no longer needed
      stage(k + int64_t{first} * a.kv_stride, a.kv_stride, keys, a.head_dim, kRegion, w);
      if (holds_both) stage(v + int64_t{first} * a.kv_stride, a.kv_stride, keys, a.head_dim, values, w);
      w.consumer_sync();
      Lanes<float> score[kRows];
      TILE_UNROLL
      for (int r = 0; r < kRows; ++r) score[r] = 0.0f;
      if (row < end) {
        TILE_UNROLL
        for (int i = 0; i < kParts; ++i) {
          if (i >= parts) continue;
          const int last = a.head_dim - i * kWarpLanes < kWarpLanes ? a.head_dim - i * kWarpLanes : kWarpLanes;
          for (int l = 0; l < last; ++l) {
            const Lanes<float> key = w.load_shared<float>(place(kRegion, stride, w.lane(), i * kWarpLanes + l));
            TILE_UNROLL
            for (int r = 0; r < kRows; ++r) score[r] = score[r] + key * w.broadcast(q[r][i], l);
          }
        }
        const Lanes<int> key = w.lane() + first;
        TILE_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const int query = first_query + w.index() * kRows + r;
          const Lanes<bool> seen = sees(a, query, key, key_end);
          Lanes<float> s = score[r] * a.scale;
          if (a.bias) s = s + bias(a, head, key - query, seen, w);
          s = select(seen, s, Lanes<float>(-INFINITY));
          const Lanes<float> top = max_of(most[r], warp_max(w, s));
          const Lanes<float> old = detail::Partial::exp_or_zero(most[r], top);
          score[r] = detail::Partial::exp_or_zero(s, top);
          most[r] = top;
          total[r] = total[r] * old + warp_sum(w, score[r]);
          TILE_UNROLL
          for (int i = 0; i < kParts; ++i)
            if (i < parts) sums[r][i] = sums[r][i] * old;
        }
      }
      if (!holds_both) {
        w.consumer_sync();
        stage(v + int64_t{first} * a.kv_stride, a.kv_stride, keys, a.head_dim, values, w);
        w.consumer_sync();
      }
      for (int t = 0; t < keys && row < end; ++t) {
        Lanes<float> weight[kRows];
        TILE_UNROLL
        for (int r = 0; r < kRows; ++r) weight[r] = w.broadcast(score[r], t);
        TILE_UNROLL
        for (int i = 0; i < kParts; ++i) {
          if (i >= parts) continue;
          const Lanes<int> at = w.lane() + i * kWarpLanes;
          const Lanes<float> value =
              select(at < Lanes<int>(a.head_dim), w.load_shared<float>(place(values, stride, t, at)), 0.0f);
          TILE_UNROLL
          for (int r = 0; r < kRows; ++r) sums[r][i] = sums[r][i] + value * weight[r];
        }
      }
    }

    TILE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const Lanes<bool> any = total[r] > Lanes<float>(0.0f);  // an item without keys gives zeros
      TILE_UNROLL
      for (int i = 0; i < kParts; ++i) {
        if (i >= parts) continue;
        const Lanes<int> at = w.lane() + i * kWarpLanes;
        const Lanes<bool> mask = (at < Lanes<int>(a.head_dim)) & Lanes<bool>(row + r < end);
        w.store(a.y + (row + r) * y_stride + first_col, at, select(any, sums[r][i] / total[r], 0.0f), mask);
      }
    }
  }

  static TILE_FN Lanes<float> bias(const Args& a, int head, const Lanes<int>& distance, const Lanes<bool>& seen,
                                   Warp& w) {
    const Lanes<int> far = select(distance > Lanes<int>(a.max_distance), Lanes<int>(a.max_distance), distance);
    const Lanes<int> near = select(far < Lanes<int>(-a.max_distance), Lanes<int>(-a.max_distance), far);
    return w.load(a.bias + head, (near + a.max_distance) * a.num_heads, seen);
  }
};

struct JointAttentionBf16 {
  using Args = JointAttention::Args;  ///< bias must be nullptr
  static constexpr bool kLoads = false, kLoaderWaits = false, kUsesShared = true;
  static constexpr int kMaxHead = 128, kWarpRows = 16, kBlockRows = kWarpRows * kConsumerWarps;

  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables& step, Warp& w, RingPosition&) {
    for (int row = tile.row_begin; row < tile.row_end;) {
      const JointAttention::Item item = JointAttention::item_of(a, step, row, w);
      const int end = item.row_end < tile.row_end ? item.row_end : tile.row_end;
      for (; row < end; row += kBlockRows)
        attend(a, item, tile.col_begin / a.head_dim, row, row + kBlockRows < end ? row + kBlockRows : end, w);
      row = end;
    }
  }

 private:
  static constexpr int kKeys = 64, kSlices = kMaxHead / 16, kDims = kMaxHead / 8;
  static constexpr int kTurn = 32, kKeyTiles = kTurn / 8;  ///< keys whose scores are in registers
  using Keys = SharedTile<kKeys, kMaxHead, 2>;
  using Values = SharedTile<kMaxHead, kKeys, 2>;  ///< transposed: two keys of one column are adjacent
  static_assert(Keys::kBytes + Values::kBytes <= kActivationBytes);

  /// Stages keys and values in shared memory. Rows past `keys` and columns past the head are zeros.
  static TILE_FN void stage(const float* k, const float* v, int64_t stride, int keys, int head_dim, const Keys& to_k,
                            const Values& to_v, Warp& w) {
    const int padded = (head_dim + 15) / 16 * 16;
    TILE_ROLLED
    for (int key = w.index(); key < kKeys; key += kConsumerWarps) TILE_ROLLED
    for (int col = 0; col < padded; col += 2 * kWarpLanes) {
      const Lanes<int> at = w.lane() * 2 + col;
      const Lanes<bool> is_there = key < keys;
      const Lanes<float> low = w.load(k + key * stride, at, (at < Lanes<int>(head_dim)) & is_there);
      const Lanes<float> high = w.load(k + key * stride, at + 1, (at + 1 < Lanes<int>(head_dim)) & is_there);
      w.store_shared(to_k.at(key, at), pack_bf16(low, high), at < Lanes<int>(padded));
    }
    TILE_ROLLED
    for (int key = 2 * w.index(); key < kKeys; key += 2 * kConsumerWarps) TILE_ROLLED
    for (int col = 0; col < padded; col += kWarpLanes) {
      const Lanes<int> at = w.lane() + col;
      const Lanes<bool> mask = at < Lanes<int>(head_dim);
      const Lanes<float> low = w.load(v + key * stride, at, mask & Lanes<bool>(key < keys));
      const Lanes<float> high = w.load(v + (key + 1) * stride, at, mask & Lanes<bool>(key + 1 < keys));
      w.store_shared(to_v.at(at, key), pack_bf16(low, high), at < Lanes<int>(padded));
    }
  }

  /// Computes rows [begin, end) of an item, at most kBlockRows.
  static TILE_FN void attend(const Args& a, const JointAttention::Item& item, int head, int begin, int end, Warp& w) {
    const Keys keys_tile{0};
    const Values values_tile{Keys::kBytes};
    const int slices = (a.head_dim + 15) / 16, dims = 2 * slices;
    const int64_t y_stride = int64_t{a.num_heads} * a.head_dim, first_col = int64_t{head} * a.head_dim;
    const float* k = a.k + int64_t{item.key_begin} * a.kv_stride + first_col;
    const float* v = (a.v ? a.v : a.k + a.v_offset) + int64_t{item.key_begin} * a.kv_stride + first_col;
    const int first_query = begin - item.row_begin;
    const auto [key_begin, key_end] = JointAttention::keys_of(a, item, first_query, end - 1 - item.row_begin, kKeys);

    // Lane (g, t) has rows g and g + 8 of the warp.
    const Lanes<int> g = fragment_group(w.lane()), t = fragment_thread(w.lane());
    const Lanes<int> row = g + (begin + w.index() * kWarpRows);
    FragmentA q[kSlices];
    FragmentC sums[kDims];
    TILE_UNROLL
    for (int s = 0; s < kSlices; ++s) {
      sums[2 * s] = sums[2 * s + 1] = zero_c();
      if (s >= slices) continue;
      TILE_UNROLL
      for (int i = 0; i < 4; ++i) {  // elements 4t .. 4t+3 of each 16, as in packed weights
        const Lanes<int> at = t * 4 + (16 * s + 2 * (i / 2)), r = row + 8 * (i % 2);
        const Lanes<int64_t> from = convert<int64_t>(r) * y_stride + convert<int64_t>(at);
        const Lanes<bool> mask = r < Lanes<int>(end);
        q[s].a[i] = pack_bf16(w.load(a.q + first_col, from, mask & (at < Lanes<int>(a.head_dim))),
                              w.load(a.q + first_col + 1, from, mask & (at + 1 < Lanes<int>(a.head_dim))));
      }
    }
    Lanes<float> most[2] = {-INFINITY, -INFINITY}, total[2] = {0.0f, 0.0f};

    for (int first = key_begin; first < key_end; first += kKeys) {
      w.consumer_sync();  // the previous chunk is no longer needed
      stage(k + int64_t{first} * a.kv_stride, v + int64_t{first} * a.kv_stride, a.kv_stride,
            key_end - first < kKeys ? key_end - first : kKeys, a.head_dim, keys_tile, values_tile, w);
      w.consumer_sync();
      if (begin + w.index() * kWarpRows >= end) continue;
      TILE_ROLLED
      for (int turn = 0; turn < kKeys; turn += kTurn) {
        FragmentC scores[kKeyTiles];
        Lanes<float> top[2] = {most[0], most[1]};
        TILE_UNROLL
        for (int n = 0; n < kKeyTiles; ++n) {
          scores[n] = zero_c();
          TILE_UNROLL
          for (int s = 0; s < kSlices; ++s) {
            if (s >= slices) continue;
            const Lanes<uint32_t> at = keys_tile.at(g + (turn + 8 * n), t * 4 + 16 * s);
            mma_bf16(w, q[s], {{w.load_shared<uint32_t>(at), w.load_shared<uint32_t>(at + 4u)}}, scores[n]);
          }
          TILE_UNROLL
          for (int c = 0; c < 4; ++c) {
            const Lanes<int> key = t * 2 + (first + turn + 8 * n + c % 2), query = row + (8 * (c / 2) - item.row_begin);
            scores[n].c[c] =
                select(JointAttention::sees(a, query, key, key_end), scores[n].c[c] * a.scale, Lanes<float>(-INFINITY));
            top[c / 2] = max_of(top[c / 2], scores[n].c[c]);
          }
        }
        Lanes<float> old[2], sum[2] = {0.0f, 0.0f};
        TILE_UNROLL
        for (int h = 0; h < 2; ++h) {
          for (int distance = 1; distance < 4; distance *= 2) top[h] = max_of(top[h], w.shuffle_xor(top[h], distance));
          old[h] = detail::Partial::exp_or_zero(most[h], top[h]);
          most[h] = top[h];
        }
        TILE_UNROLL
        for (int n = 0; n < kKeyTiles; ++n) {
          TILE_UNROLL
          for (int c = 0; c < 4; ++c) {
            scores[n].c[c] = detail::Partial::exp_or_zero(scores[n].c[c], most[c / 2]);
            sum[c / 2] = sum[c / 2] + scores[n].c[c];
          }
        }
        TILE_UNROLL
        for (int h = 0; h < 2; ++h) {
          for (int distance = 1; distance < 4; distance *= 2) sum[h] = sum[h] + w.shuffle_xor(sum[h], distance);
          total[h] = total[h] * old[h] + sum[h];
        }
        FragmentA weights[kKeyTiles / 2];
        TILE_UNROLL
        for (int i = 0; i < kKeyTiles / 2; ++i) {
          const FragmentC &low = scores[2 * i], &high = scores[2 * i + 1];
          weights[i] = {{pack_bf16(low.c[0], low.c[1]), pack_bf16(low.c[2], low.c[3]), pack_bf16(high.c[0], high.c[1]),
                         pack_bf16(high.c[2], high.c[3])}};
        }
        TILE_UNROLL
        for (int d = 0; d < kDims; ++d) {
          if (d >= dims) continue;
          TILE_UNROLL
          for (int c = 0; c < 4; ++c) sums[d].c[c] = sums[d].c[c] * old[c / 2];
          TILE_UNROLL
          for (int s = 0; s < kKeyTiles / 2; ++s) {
            const Lanes<uint32_t> at = values_tile.at(g + 8 * d, t * 2 + (turn + 16 * s));
            const Lanes<uint32_t> more = values_tile.at(g + 8 * d, t * 2 + (turn + 16 * s + 8));
            mma_bf16(w, weights[s], {{w.load_shared<uint32_t>(at), w.load_shared<uint32_t>(more)}}, sums[d]);
          }
        }
      }
    }

    TILE_UNROLL
    for (int d = 0; d < kDims; ++d) {
      if (d >= dims) continue;
      TILE_UNROLL
      for (int c = 0; c < 4; ++c) {
        const Lanes<int> r = row + 8 * (c / 2), col = t * 2 + (8 * d + c % 2);
        const Lanes<float> y = select(total[c / 2] > Lanes<float>(0.0f), sums[d].c[c] / total[c / 2], 0.0f);
        w.store(a.y + first_col, convert<int64_t>(r) * y_stride + convert<int64_t>(col), y,
                (r < Lanes<int>(end)) & (col < Lanes<int>(a.head_dim)));
      }
    }
  }
};

}  // namespace redline::tiles
