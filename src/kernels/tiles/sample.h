// Sampling of the token after a row of logits, bit-identical to the CPU's sampler (llm/sampler.h). Weights are those of
// the kernel block_exp_sum (kernels/cpu/logit_blocks.h), and their sums are exact integers, so nothing depends on the
// order of additions.
#pragma once

#include "kernels/tiles/kernel.h"

namespace redline::tiles {

/// Applies logit bias and penalties to rows that have some: `changed` is the logits, except for the tokens of the row's
/// edits.
struct EditLogits {
  struct Args {
    const float* logits;
    float* changed;  ///< rows without edits are not written
    int32_t vocab_size;
  };
  static constexpr bool kLoads = false, kLoaderWaits = false;
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables& step, Warp& w, RingPosition&) {
    if (!step.samples) return;
    for (int row = tile.row_begin; row < tile.row_end; ++row) {
      const SampleTable& sample = step.samples[row];
      if (sample.edit_begin == sample.edit_end) continue;
      const float* logits = a.logits + int64_t{row} * a.vocab_size;
      float* changed = a.changed + int64_t{row} * a.vocab_size;
      each_element({row, row + 1, tile.col_begin, tile.col_end, 0}, w,
                   [&](int, const Lanes<int>& col, Lanes<bool> mask) {
                     w.store(changed, col, w.load(logits, col, mask), mask);
                   });
      w.consumer_sync();
      // No token has two edits.
      for (int i = sample.edit_begin + w.index() * kWarpLanes; i < sample.edit_end; i += kConsumerWarps * kWarpLanes) {
        const Lanes<int> at = w.lane() + i;
        const Lanes<bool> is_edit = at < Lanes<int>(sample.edit_end);
        const Lanes<int> token = w.load(&step.edits->token, at * kWords, is_edit);
        const Lanes<bool> mask = is_edit & (token >= Lanes<int>(tile.col_begin)) & (token < Lanes<int>(tile.col_end));
        const Lanes<float> repetition = w.load(&step.edits->repetition, at * kWords, mask);
        const Lanes<float> given = w.load(logits, token, mask) + w.load(&step.edits->bias, at * kWords, mask);
        const Lanes<float> scaled = select(given > Lanes<float>(0.0f), given / repetition, given * repetition) -
                                    w.load(&step.edits->penalty, at * kWords, mask);
        // Finite stays finite: an extreme penalty neither breaks a logit nor excludes a token.
        const Lanes<float> low = select(scaled < Lanes<float>(-kMaxFloat), Lanes<float>(-kMaxFloat), scaled);
        const Lanes<float> penalized = select(low > Lanes<float>(kMaxFloat), Lanes<float>(kMaxFloat), low);
        const Lanes<bool> is_penalized = repetition > Lanes<float>(0.0f);
        const Lanes<bool> is_included = given >= Lanes<float>(-kMaxFloat);
        w.store(changed, token, select(is_penalized, select(is_included, penalized, scaled), given), mask);
      }
    }
  }

 private:
  static constexpr float kMaxFloat = 3.40282347e38f;
  static constexpr int kWords = sizeof(LogitEdit) / 4;
};

/// Samples a row per block; each warp scans a range of tokens. Thresholds are found by bisection of the 32 bits of a
/// logit. If a bound shows that few tokens are left, they are first listed in shared memory: the n-th largest of the
/// lanes' largest logits is at most the n-th largest logit (as in llm/logit_row.h).
struct Sample {
  struct Args {
    const float* logits;
    const float* changed;  ///< logits of rows with edits
    /// [rows]: the token. -1: the host samples, or a logit is NaN or +inf, or all are -inf.
    int32_t* sampled;
    int32_t vocab_size;
  };
  static constexpr bool kLoads = false, kLoaderWaits = false, kUsesShared = true;
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables& step, Warp& w, RingPosition&) {
    if (!step.samples) return;
    for (int row = tile.row_begin; row < tile.row_end; ++row) {
      const SampleTable& sample = step.samples[row];
      int32_t token = -1;
      if (sample.kind != SampleTable::kHost) {
        const float* logits = sample.edit_begin == sample.edit_end ? a.logits : a.changed;
        token = RowSampler(logits + int64_t{row} * a.vocab_size, a.vocab_size, w).sample(sample);
      }
      if (w.index() == 0) w.store(a.sampled, Lanes<int>(row), Lanes<int32_t>(token), w.lane() == Lanes<int>(0));
    }
  }

 private:
  /// Offsets in shared memory: a number of each warp, one of the block, and the list of logits and tokens.
  static constexpr uint32_t kNumbers = 0, kBlockNumber = kNumbers + 8 * kConsumerWarps, kList = kBlockNumber + 64;
  static constexpr int kMaxListed = (kActivationBytes - 8 * kConsumerWarps - 64) / 8;
  static constexpr uint64_t kInvalid = ~uint64_t{0};
  static constexpr uint32_t kLowestKey = 0x00800000;  ///< key of the lowest finite logit

  /// Samples one row of logits with all warps of a block.
  class RowSampler {
   public:
    TILE_FN RowSampler(const float* logits, int32_t vocab_size, Warp& w) : logits_(logits), w_(w) { deal(vocab_size); }

    TILE_FN int32_t sample(const SampleTable& s) {
      const uint64_t first = best();
      const auto best_key = static_cast<uint32_t>(first >> 32);
      if (first == kInvalid || best_key < kLowestKey) return -1;
      const auto best_id = static_cast<int32_t>(~static_cast<uint32_t>(first));
      if (s.kind == SampleTable::kGreedy) return best_id;
      best_ = w_.load_uniform(logits_ + best_id);
      scale_ = s.scale * 1.44269504f;

      const auto one = [](const Lanes<float>&) { return Lanes<int64_t>(int64_t{1}); };
      const auto weight_units = [&](const Lanes<float>& x) { return units(x); };
      if (s.top_k > 0) {
        if (s.top_k <= kLanes) list(lane_bound(best_key, s.top_k));
        if (sum(key_, one) > s.top_k) keep_likeliest(best_key, s.top_k, one);
      }
      if (s.top_p < 1) {
        const int64_t all = sum(key_, weight_units);
        const double share = double{s.top_p} * static_cast<double>(all);
        int64_t wanted = static_cast<int64_t>(share);
        wanted += static_cast<double>(wanted) < share ? 1 : 0;
        wanted = wanted < 1 ? 1 : wanted < all ? wanted : all;
        for (int n = kLanes / 4; n <= kLanes && !is_list_; n *= 4) {
          const uint32_t bound = lane_bound(best_key, n);
          if (sum(bound, weight_units) < wanted) continue;
          list(bound);
          break;
        }
        keep_likeliest(best_key, wanted, weight_units);
      }
      if (s.min_p > 0) {
        Lanes<float> most = 0.0f;
        each([&](const Lanes<float>& x, const Lanes<int>& id, const Lanes<bool>& mask) {
          most = max_of(most, select(mask & is_kept(x, id), weight(x), Lanes<float>(0.0f)));
        });
        min_weight_ = s.min_p * bits_to_float(across(float_to_bits(warp_max(w_, most)), Largest{}));
      }
      const int64_t all = sum(key_, weight_units);
      const auto share = static_cast<int64_t>(s.u * static_cast<double>(all));
      return find(share < all - 1 ? share : all - 1, [&](const Lanes<float>& x, const Lanes<int>& id) {
        return select(is_kept(x, id), units(x), Lanes<int64_t>(int64_t{0}));
      });
    }

   private:
    struct Largest {
      template <class T>
      TILE_FN T operator()(const T& a, const T& b) const {
        return select_of(a > b, a, b);
      }
    };
    struct Sum {
      template <class T>
      TILE_FN T operator()(const T& a, const T& b) const {
        return a + b;
      }
    };
    template <class T>
    static TILE_FN T select_of(bool mask, const T& a, const T& b) {
      return mask ? a : b;
    }
#ifndef __CUDACC__
    template <class T>
    static Lanes<T> select_of(const Lanes<bool>& mask, const Lanes<T>& a, const Lanes<T>& b) {
      return select(mask, a, b);
    }
#endif

    /// Combines the values of the lanes; all lanes get the result.
    template <class T, class Combine>
    TILE_FN T of_lanes(Lanes<T> x, const Combine& combine) {
      for (int distance = kWarpLanes / 2; distance > 0; distance /= 2) x = combine(x, w_.shuffle_xor(x, distance));
      return w_.broadcast(x, 0);
    }
    template <class T>
    TILE_FN T shared(uint32_t at) {
      return w_.broadcast(w_.template load_shared<T>(Lanes<uint32_t>(at)), 0);
    }
    /// Assigns a range of the tokens to each warp.
    TILE_FN void deal(int count) {
      const int chunks = (count + kWarpLanes - 1) / kWarpLanes;
      const int own = (chunks + kConsumerWarps - 1) / kConsumerWarps * kWarpLanes;
      count_ = count;
      begin_ = w_.index() * own;
      end_ = begin_ + own < count ? begin_ + own : count;
    }
    /// Stores every warp's number for shared().
    template <class T>
    TILE_FN void share(T mine) {
      w_.consumer_sync();  // earlier numbers have been read
      w_.store_shared(Lanes<uint32_t>(kNumbers + 8u * static_cast<uint32_t>(w_.index())), Lanes<T>(mine),
                      w_.lane() == Lanes<int>(0));
      w_.consumer_sync();
    }
    /// Combines the values of all warps; each warp gets the result.
    template <class T, class Combine>
    TILE_FN T across(const Lanes<T>& mine, const Combine& combine) {
      share(w_.broadcast(mine, 0));
      T all = shared<T>(kNumbers);
      for (uint32_t warp = 1; warp < kConsumerWarps; ++warp) all = combine(all, shared<T>(kNumbers + 8 * warp));
      return all;
    }

    struct Tokens {
      Lanes<float> x;
      Lanes<int> id;
      Lanes<bool> mask;
    };
    TILE_FN Tokens tokens(int first) {
      Tokens t;
      const Lanes<int> at = w_.lane() + first;
      t.mask = at < Lanes<int>(count_);
      if (is_list_) {
        const Lanes<uint32_t> slot = convert<uint32_t>(select(t.mask, at, Lanes<int>(0))) * 8u + kList;
        t.x = w_.template load_shared<float>(slot);
        t.id = w_.template load_shared<int>(slot + 4u);
      } else {
        t.x = w_.load(logits_, at, t.mask);
        t.id = at;
      }
      return t;
    }
    /// Calls f(logits, ids, mask) for this warp's tokens, in their order.
    template <class F>
    TILE_FN void each(const F& f) {
      for (int i = begin_; i < end_; i += kWarpLanes) {
        const Tokens t = tokens(i);
        f(t.x, t.id, t.mask);
      }
    }
    /// Returns the n-th largest of lane_best_, n from 1 to the number of lanes, but at least the key of the lowest
    /// finite logit.
    TILE_FN uint32_t lane_bound(uint32_t best_key, int n) {
      uint32_t low = kLowestKey, high = best_key;
      while (low < high) {
        const uint32_t middle = high - (high - low) / 2;
        const Lanes<int> counts = select(lane_best_ >= Lanes<uint32_t>(middle), Lanes<int>(1), Lanes<int>(0));
        if (across(Lanes<int>(of_lanes(counts, Sum{})), Sum{}) >= n) low = middle;
        else high = middle - 1;
      }
      return low;
    }
    /// Lists the tokens from `bound` on and continues with these only, if there is room for them.
    TILE_FN void list(uint32_t bound) {
      int own = 0;
      each([&](const Lanes<float>& x, const Lanes<int>&, const Lanes<bool>& mask) {
        own += popcount_of(w_.ballot(mask & (key_of(x) >= Lanes<uint32_t>(bound))));
      });
      share(own);
      int place = 0, all = 0;
      for (int warp = 0; warp < kConsumerWarps; ++warp) {
        const int count = shared<int>(kNumbers + 8u * static_cast<uint32_t>(warp));
        place += warp < w_.index() ? count : 0;
        all += count;
      }
      if (all > kMaxListed) return;
      const Lanes<uint32_t> below = (Lanes<uint32_t>(1u) << convert<uint32_t>(w_.lane())) - 1u;
      each([&](const Lanes<float>& x, const Lanes<int>& id, const Lanes<bool>& mask) {
        const Lanes<bool> chosen = mask & (key_of(x) >= Lanes<uint32_t>(bound));
        const uint32_t bits = w_.ballot(chosen);
        const Lanes<uint32_t> slot = convert<uint32_t>(popcount_of(Lanes<uint32_t>(bits) & below) + place) * 8u + kList;
        w_.store_shared(slot, x, chosen);
        w_.store_shared(slot + 4u, id, chosen);
        place += popcount_of(bits);
      });
      w_.consumer_sync();
      is_list_ = true;
      deal(all);
    }

    /// Returns keys in the order of floats; -0 is equal to 0.
    static TILE_FN Lanes<uint32_t> key_of(const Lanes<float>& x) {
      const Lanes<uint32_t> bits = float_to_bits(x + 0.0f);
      return bits ^ select((bits >> 31u) != Lanes<uint32_t>(0u), Lanes<uint32_t>(0xffffffffu), 0x80000000u);
    }
    /// Returns key and number of the likeliest token, of equal ones the first; a larger result is likelier. kInvalid: a
    /// logit is NaN or +inf.
    TILE_FN uint64_t best() {
      Lanes<uint64_t> most = uint64_t{0};
      each([&](const Lanes<float>& x, const Lanes<int>& id, const Lanes<bool>& mask) {
        const Lanes<uint64_t> place =
            (convert<uint64_t>(key_of(x)) << uint64_t{32}) | convert<uint64_t>(convert<uint32_t>(id) ^ 0xffffffffu);
        const Lanes<uint64_t> valid = select(x < Lanes<float>(INFINITY), place, Lanes<uint64_t>(kInvalid));
        const Lanes<uint64_t> seen = select(mask, valid, Lanes<uint64_t>(uint64_t{0}));
        most = select(seen > most, seen, most);
      });
      lane_best_ = convert<uint32_t>(most >> uint64_t{32});
      return across(Lanes<uint64_t>(of_lanes(most, Largest{})), Largest{});
    }

    /// Returns 2^20 times exp((x - best) * scale of the row), as block_exp_sum computes it.
    TILE_FN Lanes<float> scaled_weight(const Lanes<float>& x) const {
      const Lanes<float> y = max_of((x - best_) * scale_, Lanes<float>(-126.0f));
      const Lanes<float> shifted = y + 12582932.0f, f = y - (shifted - 12582932.0f);
      Lanes<float> p = fma_of(f, 0x1.5c08e4p-10f, 0x1.3d0c52p-7f);
      p = fma_of(p, f, 0x1.c6b6e4p-5f);
      p = fma_of(p, f, 0x1.ebf918p-3f);
      p = fma_of(p, f, 0x1.62e428p-1f);
      p = fma_of(p, f, 0x1.000002p+0f);
      return bits_to_float(float_to_bits(p) + (float_to_bits(shifted) << 23u));
    }
    TILE_FN Lanes<float> weight(const Lanes<float>& x) const { return (scaled_weight(x) - 0x1p-106f) * 0x1p-20f; }
    /// Converts to units of 2^-42, rounded to nearest even.
    TILE_FN Lanes<int64_t> units(const Lanes<float>& x) const {
      constexpr double kInteger = 0x1.8p52;
      return convert<int64_t>((convert<double>(weight(x)) * 0x1p42 + kInteger) - kInteger);
    }

    TILE_FN Lanes<bool> is_kept(const Lanes<float>& x, const Lanes<int>& id) const {
      const Lanes<uint32_t> key = key_of(x);
      const Lanes<bool> is_likely =
          (key > Lanes<uint32_t>(key_)) | ((key == Lanes<uint32_t>(key_)) & (id <= Lanes<int>(id_)));
      return min_weight_ > 0 ? is_likely & (weight(x) >= Lanes<float>(min_weight_)) : is_likely;
    }
    /// Returns the sum of value(logit) over the remaining tokens whose keys are at least `key`.
    template <class Value>
    TILE_FN int64_t sum(uint32_t key, const Value& value) {
      Lanes<int64_t> sums = int64_t{0};
      each([&](const Lanes<float>& x, const Lanes<int>& id, const Lanes<bool>& mask) {
        const Lanes<bool> counts = mask & is_kept(x, id) & (key_of(x) >= Lanes<uint32_t>(key));
        sums = sums + select(counts, value(x), Lanes<int64_t>(int64_t{0}));
      });
      return across(Lanes<int64_t>(of_lanes(sums, Sum{})), Sum{});
    }
    /// Returns the first token, in the order of numbers, up to which the sum of values exceeds `target`.
    template <class Value>
    TILE_FN int32_t find(int64_t target, const Value& value) {
      const auto values = [&](const Tokens& t) { return select(t.mask, value(t.x, t.id), Lanes<int64_t>(int64_t{0})); };
      Lanes<int64_t> sums = int64_t{0};
      for (int i = begin_; i < end_; i += kWarpLanes) sums = sums + values(tokens(i));
      const int64_t mine = of_lanes(sums, Sum{});
      share(mine);
      int64_t before = 0;
      for (int warp = 0; warp < w_.index(); ++warp)
        before = before + shared<int64_t>(kNumbers + 8u * static_cast<uint32_t>(warp));
      if (before <= target && target < before + mine) {
        int32_t found = -1;
        for (int i = begin_; i < end_ && found < 0; i += kWarpLanes) {
          const Tokens t = tokens(i);
          const Lanes<int64_t> own = values(t);
          const int64_t all = of_lanes(own, Sum{});
          if (before + all <= target) {
            before = before + all;
            continue;
          }
          for (int lane = 0; lane < kWarpLanes && found < 0; ++lane) {
            before = before + w_.broadcast(own, lane);
            if (before > target) found = w_.broadcast(t.id, lane);
          }
        }
        w_.store_shared(Lanes<uint32_t>(uint32_t{kBlockNumber}), Lanes<int32_t>(found), w_.lane() == Lanes<int>(0));
      }
      w_.consumer_sync();
      return shared<int32_t>(kBlockNumber);
    }
    /// Keeps the fewest likeliest tokens whose values reach `wanted`, of equal ones the first.
    template <class Value>
    TILE_FN void keep_likeliest(uint32_t best_key, int64_t wanted, const Value& value) {
      uint32_t low = key_, high = best_key;
      while (low < high) {
        const uint32_t middle = high - (high - low) / 2;
        if (sum(middle, value) >= wanted) low = middle;
        else high = middle - 1;
      }
      const int64_t above = low == best_key ? 0 : sum(low + 1, value);
      const int32_t last = find(wanted - above - 1, [&](const Lanes<float>& x, const Lanes<int>& id) {
        return select(is_kept(x, id) & (key_of(x) == Lanes<uint32_t>(low)), value(x), Lanes<int64_t>(int64_t{0}));
      });
      key_ = low;
      id_ = last;
    }

    static constexpr int kLanes = kConsumerWarps * kWarpLanes;
    const float* logits_;
    Warp& w_;
    bool is_list_ = false;
    int32_t count_ = 0, begin_ = 0, end_ = 0;  ///< number of all tokens, or of the listed ones; and this warp's range
    Lanes<uint32_t> lane_best_ = 0u;           ///< keys of the largest logits of the lanes
    float best_ = 0, scale_ = 1;
    // The remaining tokens: those with a larger key, and up to id_ those with this key, with a weight of at least
    // min_weight_.
    uint32_t key_ = kLowestKey;
    int32_t id_ = INT32_MAX;
    float min_weight_ = 0;
  };
};

}  // namespace redline::tiles
