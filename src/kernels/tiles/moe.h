// The ops of a mixture of experts other than its products (linear.h): moe_router, expert_sum and column_squares; also
// column_squares without experts.
#pragma once

#include "kernels/tiles/kernel.h"

namespace redline::tiles {

/// Chooses the experts of each token and orders the pairs by expert (graph/ops/moe_router.h). One task: every pair's
/// place depends on all tokens.
struct MoeRouter {
  struct Args {
    const float* logits;
    const float* bias;  ///< [num_experts] or nullptr
    float* weights;     ///< [tokens, experts_per_token]
    int32_t* offsets;   ///< [num_experts + 1]
    int32_t* order;     ///< [tokens * experts_per_token]
    int32_t* chosen;    ///< [tokens * experts_per_token]: the expert of each pair
    int32_t row_dim;    ///< index in StepTables::rows of the number of tokens
    int32_t num_experts, experts_per_token;
    int32_t num_groups, groups_per_token;
    int32_t is_sigmoid, normalizes, groups_by_two_best;
    float scale;
  };
  static constexpr int kMaxExperts = 512, kParts = kMaxExperts / kWarpLanes;
  static constexpr bool kLoads = false, kLoaderWaits = false;

  static TILE_FN void compute(const Args& a, const TileRange&, const StepTables& step, Warp& w, RingPosition&) {
    const int tokens = step.rows[a.row_dim], pairs = tokens * a.experts_per_token;
    for (int t = w.index(); t < tokens; t += kConsumerWarps) choose(a, t, w);
    w.consumer_sync();
    // The pairs of an expert follow the pairs of all experts before it.
    for (int e = w.index(); e <= a.num_experts; e += kConsumerWarps) {
      Lanes<int> before = 0;
      for (int i = 0; i < pairs; i += kWarpLanes) {
        const Lanes<int> at = w.lane() + i;
        const Lanes<bool> mask = at < Lanes<int>(pairs);
        const Lanes<int> expert = w.load(a.chosen, at, mask);
        before = before + select(mask & (expert < Lanes<int>(e)), Lanes<int>(1), Lanes<int>(0));
      }
      int first = w.broadcast(sum_of(w, before), 0);
      w.store(a.offsets, Lanes<int>(e), Lanes<int32_t>(first), w.lane() == Lanes<int>(0));
      if (e == a.num_experts) continue;
      for (int i = 0; i < pairs; i += kWarpLanes) {
        const Lanes<int> at = w.lane() + i;
        const Lanes<bool> mask = at < Lanes<int>(pairs);
        const Lanes<bool> own = mask & (w.load(a.chosen, at, mask) == Lanes<int>(e));
        const Lanes<int> one = select(own, Lanes<int>(1), Lanes<int>(0)), place = places_of(w, one);
        w.store(a.order, place + first, convert<int32_t>(at), own);
        first += w.broadcast(sum_of(w, one), 0);
      }
    }
  }

 private:
  static TILE_FN Lanes<int> sum_of(Warp& w, Lanes<int> x) {
    for (int distance = kWarpLanes / 2; distance > 0; distance /= 2) x = x + w.shuffle_xor(x, distance);
    return x;
  }
  /// Returns the exclusive prefix sum over the lanes.
  static TILE_FN Lanes<int> places_of(Warp& w, const Lanes<int>& x) {
    const Lanes<int> lane = w.lane();
    Lanes<int> block = x, before = 0;  // sums of the lane's block of 1, 2, 4, .. lanes, and of its part before the lane
    for (int distance = 1; distance < kWarpLanes; distance *= 2) {
      const Lanes<int> other = w.shuffle_xor(block, distance);
      before = before + select((lane & Lanes<int>(distance)) != Lanes<int>(0), other, Lanes<int>(0));
      block = block + other;
    }
    return before;
  }
  struct Best {
    float key;
    int expert;
  };
  /// Returns the largest key and the smallest expert that has it.
  static TILE_FN Best best_of(Warp& w, const Lanes<float> (&keys)[kParts], int parts) {
    Lanes<float> key = keys[0];
    Lanes<int> expert = w.lane();
    TILE_UNROLL
    for (int i = 1; i < kParts; ++i)
      if (i < parts) {
        const Lanes<bool> is_better = keys[i] > key;
        key = select(is_better, keys[i], key);
        expert = select(is_better, Lanes<int>(w.lane() + i * kWarpLanes), expert);
      }
    for (int distance = kWarpLanes / 2; distance > 0; distance /= 2) {
      const Lanes<float> other_key = w.shuffle_xor(key, distance);
      const Lanes<int> other = w.shuffle_xor(expert, distance);
      const Lanes<bool> is_better = (other_key > key) | ((other_key == key) & (other < expert));
      key = select(is_better, other_key, key);
      expert = select(is_better, other, expert);
    }
    return {w.broadcast(key, 0), w.broadcast(expert, 0)};
  }
  /// Clears all parts, for the reason given at Partial::clear in attention.h.
  static TILE_FN void clear(Lanes<float> (&keys)[kParts]) {
    TILE_UNROLL
    for (int i = 0; i < kParts; ++i) keys[i] = -INFINITY;
  }
  static TILE_FN void remove(Warp& w, Lanes<float> (&keys)[kParts], int parts, int expert) {
    TILE_UNROLL
    for (int i = 0; i < kParts; ++i)
      if (i < parts)
        keys[i] = select(w.lane() + i * kWarpLanes == Lanes<int>(expert), Lanes<float>(-INFINITY), keys[i]);
  }

  static TILE_FN void choose(const Args& a, int t, Warp& w) {
    // NaN counts as this value, which is above that of excluded experts.
    constexpr float kLowest = -3.4028234663852886e38f;
    const int parts = (a.num_experts + kWarpLanes - 1) / kWarpLanes, n = a.num_experts;
    const float* logits = a.logits + int64_t{t} * n;
    Lanes<float> scores[kParts], keys[kParts];
    clear(scores);
    clear(keys);
    Lanes<float> top = -INFINITY, sum = 0.0f;
    TILE_UNROLL
    for (int i = 0; i < kParts; ++i)
      if (i < parts) {
        const Lanes<int> e = w.lane() + i * kWarpLanes;
        scores[i] = select(e < Lanes<int>(n), w.load(logits, e, e < Lanes<int>(n)), Lanes<float>(-INFINITY));
        top = max_of(top, scores[i]);
      }
    top = warp_max(w, top);
    TILE_UNROLL
    for (int i = 0; i < kParts; ++i)
      if (i < parts) {
        if (a.is_sigmoid) {
          scores[i] = Lanes<float>(1.0f) / (exp_of(-scores[i]) + 1.0f);
        } else {
          scores[i] = exp_of(scores[i] - top);
          sum = sum + scores[i];
        }
      }
    const Lanes<float> divisor = a.is_sigmoid ? Lanes<float>(1.0f) : warp_sum(w, sum);
    TILE_UNROLL
    for (int i = 0; i < kParts; ++i)
      if (i < parts) {
        const Lanes<int> e = w.lane() + i * kWarpLanes;
        const Lanes<bool> mask = e < Lanes<int>(n);
        scores[i] = scores[i] / divisor;
        const Lanes<float> key = a.bias ? scores[i] + w.load(a.bias, e, mask) : scores[i];
        keys[i] =
            select(mask, select(key > Lanes<float>(kLowest), key, Lanes<float>(kLowest)), Lanes<float>(-INFINITY));
      }
    if (a.groups_per_token < a.num_groups) leave_groups(a, keys, parts, kLowest, w);
    Lanes<float> total = 0.0f;
    float* weights = a.weights + int64_t{t} * a.experts_per_token;
    for (int i = 0; i < a.experts_per_token; ++i) {
      const Best best = best_of(w, keys, parts);
      remove(w, keys, parts, best.expert);
      const float weight = score_of(w, scores, parts, best.expert);
      total = total + weight;
      w.store(weights, Lanes<int>(i), Lanes<float>(weight), w.lane() == Lanes<int>(0));
      w.store(a.chosen + int64_t{t} * a.experts_per_token, Lanes<int>(i), Lanes<int32_t>(best.expert),
              w.lane() == Lanes<int>(0));
    }
    const Lanes<float> all = a.normalizes ? max_of(total, 1e-20f) : Lanes<float>(1.0f);
    for (int i = 0; i < a.experts_per_token; ++i) {
      const Lanes<bool> first = w.lane() == Lanes<int>(0);
      w.store(weights, Lanes<int>(i), w.load(weights, Lanes<int>(i), first) / all * a.scale, first);
    }
  }
  static TILE_FN float score_of(Warp& w, const Lanes<float> (&scores)[kParts], int parts, int expert) {
    Lanes<float> found = 0.0f;
    TILE_UNROLL
    for (int i = 0; i < kParts; ++i)
      if (i < parts) {
        const Lanes<float> score = w.broadcast(scores[i], expert % kWarpLanes);
        found = i == expert / kWarpLanes ? score : found;
      }
    return w.broadcast(found, 0);
  }
  /// Excludes the experts of all groups but the best ones.
  static TILE_FN void leave_groups(const Args& a, Lanes<float> (&keys)[kParts], int parts, float lowest, Warp& w) {
    const int size = a.num_experts / a.num_groups;
    Lanes<float> groups[kParts];  // score of group g, in lane g % 32 of part g / 32
    const int group_parts = (a.num_groups + kWarpLanes - 1) / kWarpLanes;
    clear(groups);
    for (int g = 0; g < a.num_groups; ++g) {
      Lanes<float> own[kParts];
      clear(own);
      TILE_UNROLL
      for (int i = 0; i < kParts; ++i)
        if (i < parts) {
          const Lanes<int> e = w.lane() + i * kWarpLanes;
          own[i] =
              select((e >= Lanes<int>(g * size)) & (e < Lanes<int>((g + 1) * size)), keys[i], Lanes<float>(-INFINITY));
        }
      const Best first = best_of(w, own, parts);
      float score = first.key;
      if (a.groups_by_two_best) {
        remove(w, own, parts, first.expert);
        score += best_of(w, own, parts).key;
      }
      score = score > lowest ? score : lowest;
      TILE_UNROLL
      for (int i = 0; i < kParts; ++i)
        if (i < group_parts)
          groups[i] = select(w.lane() + i * kWarpLanes == Lanes<int>(g), Lanes<float>(score), groups[i]);
    }
    for (int i = 0; i < a.groups_per_token; ++i) remove(w, groups, group_parts, best_of(w, groups, group_parts).expert);
    // The groups that are left over are excluded.
    for (int g = 0; g < a.num_groups; ++g) {
      if (!(score_of(w, groups, group_parts, g) > -INFINITY)) continue;
      TILE_UNROLL
      for (int i = 0; i < kParts; ++i)
        if (i < parts) {
          const Lanes<int> e = w.lane() + i * kWarpLanes;
          keys[i] =
              select((e >= Lanes<int>(g * size)) & (e < Lanes<int>((g + 1) * size)), Lanes<float>(-INFINITY), keys[i]);
        }
    }
  }
};

/// Computes y[t] = sum_i weights[t, i] x[t * experts_per_token + i] + sigmoid(gate[t]) shared[t].
struct ExpertSum {
  struct Args {
    const float* x;
    const float* weights;
    const float* shared;  ///< or nullptr
    const float* gate;    ///< or nullptr
    float* y;
    int32_t cols, experts_per_token;
  };
  static constexpr bool kLoads = false, kLoaderWaits = false;
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables&, Warp& w, RingPosition&) {
    each_element(tile, w, [&](int row, const Lanes<int>& col, const Lanes<bool>& mask) {
      Lanes<float> sum = 0.0f;
      for (int i = 0; i < a.experts_per_token; ++i) {
        const int64_t pair = int64_t{row} * a.experts_per_token + i;
        sum = sum + w.load(a.x + pair * a.cols, col, mask) * w.load_uniform(a.weights + pair);
      }
      if (a.shared) {
        const float factor = a.gate ? 1.0f / (1.0f + exp_of(-w.load_uniform(a.gate + row))) : 1.0f;
        sum = sum + w.load(a.shared + int64_t{row} * a.cols, col, mask) * factor;
      }
      w.store(a.y + int64_t{row} * a.cols, col, sum, mask);
    });
  }
};

/// Computes sums of squares of columns, over all rows, or for each expert over its rows, followed by their number
/// (graph/ops/column_squares.h). A task has some columns and goes through the rows in order.
struct Squares {
  struct Args {
    const float* x;
    const int32_t* offsets;  ///< nullptr: all rows
    const int32_t* order;
    float* y;         ///< [1, cols], or [experts, cols + 1]
    int32_t row_dim;  ///< index in StepTables::rows of the rows of x
    int32_t cols;
    /// Row of x of a pair: pair / experts_per_token; 0: the row is the place itself.
    int32_t experts_per_token;
  };
  static constexpr bool kLoads = false, kLoaderWaits = false;
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables& step, Warp& w, RingPosition&) {
    each_element(tile, w, [&](int expert, const Lanes<int>& col, const Lanes<bool>& mask) {
      const int begin = a.offsets ? w.load_uniform(a.offsets + expert) : 0;
      const int end = a.offsets ? w.load_uniform(a.offsets + expert + 1) : step.rows[a.row_dim];
      const Lanes<bool> is_sum = col < Lanes<int>(a.cols);
      Lanes<float> sum = 0.0f;
      for (int i = begin; i < end; ++i) {
        const int row = a.experts_per_token > 0 ? w.load_uniform(a.order + i) / a.experts_per_token : i;
        const Lanes<float> x = w.load(a.x + int64_t{row} * a.cols, col, mask & is_sum);
        sum = sum + x * x;
      }
      const int stride = a.offsets ? a.cols + 1 : a.cols;
      w.store(a.y + int64_t{expert} * stride, col, select(is_sum, sum, Lanes<float>(static_cast<float>(end - begin))),
              mask);
    });
  }
};

/// Concatenates heads: each head of y is a head of a followed by one of b. With one head, columns are side by side.
struct Concat {
  struct Args {
    const float* a;
    const float* b;
    float* y;
    int32_t cols, a_cols, b_cols;  ///< columns of a row of y; of one head of a; of one head of b
  };
  static constexpr bool kLoads = false, kLoaderWaits = false;
  static TILE_FN void compute(const Args& args, const TileRange& tile, const StepTables&, Warp& w, RingPosition&) {
    each_element(tile, w, [&](int row, const Lanes<int>& col, const Lanes<bool>& mask) {
      const int both = args.a_cols + args.b_cols, heads = args.cols / both;
      const Lanes<int> head = col / Lanes<int>(both), within = col % Lanes<int>(both);
      const Lanes<bool> is_a = within < Lanes<int>(args.a_cols);
      const Lanes<float> a =
          w.load(args.a + int64_t{row} * heads * args.a_cols, head * args.a_cols + within, mask & is_a);
      const Lanes<float> b =
          w.load(args.b + int64_t{row} * heads * args.b_cols, head * args.b_cols + within - args.a_cols,
                 mask & (within >= Lanes<int>(args.a_cols)));
      w.store(args.y + int64_t{row} * args.cols, col, select(is_a, a, b), mask);
    });
  }
};

}  // namespace redline::tiles
