// Layers with a recurrent state: causal_conv, gated_scan, gated_norm and lstm. Tokens of a sequence are computed one
// after the other, so the bits of a row do not depend on how a prompt is cut into steps.
#pragma once

#include "kernels/tiles/kernel.h"
#include "kernels/tiles/panel.h"

namespace redline::tiles {

/// The location of a kRecurrent state in the pages of its group: a sequence has the page that the step reads, then the
/// page that it writes.
struct RecurrentAddress {
  int32_t group;  ///< index in StepTables::groups
  int64_t offset;

  TILE_FN float* at(const StateTables& state, int sequence, int which) const {
    return reinterpret_cast<float*>(state.memory + state.pages[2 * sequence + which] * state.page_bytes + offset);
  }
};

/// Computes y[t, c] = f(bias[c] + sum_i weight[i, c] x[t - taps + 1 + i, c]); the inputs before a step are in the
/// state.
struct CausalConv {
  struct Args {
    const float* x;
    const float* weight;  ///< [taps, channels]
    const float* bias;    ///< [channels] or nullptr
    float* y;
    int32_t channels, taps, has_silu;
    RecurrentAddress state;
  };
  static constexpr int kMaxTaps = 4;
  static constexpr bool kLoads = false, kLoaderWaits = false;
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables& step, Warp& w, RingPosition&) {
    const StateTables& state = step.groups[a.state.group];
    const int blocks = (tile.col_end - tile.col_begin + kWarpLanes - 1) / kWarpLanes;
    for (int i = w.index(); i < blocks * step.num_sequences; i += kConsumerWarps) {
      const int s = i / blocks;
      convolve(a, step.sequences[s], a.state.at(state, s, 0), a.state.at(state, s, 1),
               w.lane() + (tile.col_begin + i % blocks * kWarpLanes), tile.col_end, w);
    }
  }

 private:
  static TILE_FN void convolve(const Args& a, const SequenceTable& rows, const float* before, float* after,
                               const Lanes<int>& channel, int end, Warp& w) {
    const Lanes<bool> mask = channel < Lanes<int>(end);
    Lanes<float> weight[kMaxTaps], window[kMaxTaps];
    for (int i = 0; i < kMaxTaps; ++i) {
      weight[i] = i < a.taps ? w.load(a.weight + i * a.channels, channel, mask) : Lanes<float>(0.0f);
      window[i] = i > 0 && i < a.taps ? w.load(before + (i - 1) * a.channels, channel, mask) : Lanes<float>(0.0f);
    }
    const Lanes<float> bias = a.bias ? w.load(a.bias, channel, mask) : Lanes<float>(0.0f);
    for (int t = rows.row_begin; t < rows.row_begin + rows.rows; ++t) {
      const Lanes<float> x = w.load(a.x + int64_t{t} * a.channels, channel, mask);
      Lanes<float> sum = bias;
      for (int i = 0; i < kMaxTaps; ++i) {
        if (i + 1 < kMaxTaps) window[i] = window[i + 1];
        if (i == a.taps - 1) window[i] = x;
        if (i < a.taps) sum = sum + weight[i] * window[i];
      }
      if (a.has_silu) sum = sum / (exp_of(-sum) + 1.0f);
      w.store(a.y + int64_t{t} * a.channels, channel, sum, mask);
    }
    for (int i = 1; i < kMaxTaps; ++i)
      if (i < a.taps) w.store(after + (i - 1) * a.channels, channel, window[i], mask);
  }
};

/// Computes the recurrence of graph/ops/gated_scan.h, token by token. A task has one head; a warp has 32 of its columns
/// in one sequence, and S stays in the state's page. Only S of the state is used: the CPU's chunk data is not.
struct GatedScan {
  struct Args {
    const float* x;
    const float* step;
    const float* decay;
    const float* bias;
    const float* skip;  ///< [heads]; nullptr: the gated delta rule
    const float* beta;  ///< [tokens, heads], with the delta rule
    float* y;
    int32_t num_heads, num_groups, key_dim, value_dim, groups_alternate;
    float step_min, step_max;
    RecurrentAddress state;
  };
  static constexpr bool kLoads = false, kLoaderWaits = false;
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables& step, Warp& w, RingPosition&) {
    const StateTables& state = step.groups[a.state.group];
    const int head = tile.col_begin / a.value_dim, blocks = (a.value_dim + kWarpLanes - 1) / kWarpLanes;
    for (int i = w.index(); i < blocks * step.num_sequences; i += kConsumerWarps) {
      const int s = i / blocks;
      const Lanes<int> column = w.lane() + i % blocks * kWarpLanes;
      const int64_t at = int64_t{head} * a.key_dim * a.value_dim;
      const float* from = a.state.at(state, s, 0) + at;
      float* const to = a.state.at(state, s, 1) + at;
      const SequenceTable& rows = step.sequences[s];
      for (int t = rows.row_begin; t < rows.row_begin + rows.rows; ++t, from = to)
        token(a, t, head, column, from, to, w);
    }
  }

 private:
  static TILE_FN float softplus(float x) { return x > 20 ? x : log1p_of(exp_of(x)); }
  static TILE_FN float norm_of(const float* x, int n, Warp& w) {
    Lanes<float> sum = 0.0f;
    for (int i = 0; i < n; i += kWarpLanes) {
      const Lanes<int> at = w.lane() + i;
      const Lanes<float> v = w.load(x, at, at < Lanes<int>(n));
      sum = sum + v * v;
    }
    return w.broadcast(warp_sum(w, sum), 0) + 1e-6f;
  }
  static TILE_FN void token(const Args& a, int t, int head, const Lanes<int>& column, const float* from, float* to,
                            Warp& w) {
    const bool is_delta = a.skip == nullptr;
    const int n = a.key_dim, p = a.value_dim, keys = a.num_groups * n, values = a.num_heads * p;
    const int group = a.groups_alternate ? head % a.num_groups : head / (a.num_heads / a.num_groups);
    const float* row = a.x + int64_t{t} * (values + 2 * keys);
    const float* q = row + (is_delta ? 0 : values + keys) + group * n;
    const float* k = row + (is_delta ? keys : values) + group * n;
    const Lanes<bool> mask = column < Lanes<int>(p);
    const Lanes<float> v = w.load(row + (is_delta ? 2 * keys : 0) + head * p, column, mask);
    float step = softplus(w.load_uniform(a.step + int64_t{t} * a.num_heads + head) + w.load_uniform(a.bias + head));
    step = step < a.step_min ? a.step_min : step > a.step_max ? a.step_max : step;
    const float kept = exp_of(w.load_uniform(a.decay + head) * step);
    float query = 1, key = 1;
    Lanes<float> u = v * step, sum = 0.0f;
    if (is_delta) {
      query = 1 / sqrt_of(norm_of(q, n, w) * static_cast<float>(n));
      key = 1 / sqrt_of(norm_of(k, n, w));
      Lanes<float> known = 0.0f;
      for (int i = 0; i < n; ++i)
        known = known + w.load(from + i * p, column, mask) * kept * (w.load_uniform(k + i) * key);
      u = (v - known) / (1 + exp_of(-w.load_uniform(a.beta + int64_t{t} * a.num_heads + head)));
    } else {
      sum = v * w.load_uniform(a.skip + head);
    }
    for (int i = 0; i < n; ++i) {
      const Lanes<float> s = w.load(from + i * p, column, mask) * kept + u * (w.load_uniform(k + i) * key);
      w.store(to + i * p, column, s, mask);
      sum = sum + s * (w.load_uniform(q + i) * query);
    }
    w.store(a.y + int64_t{t} * values + head * p, column, sum, mask);
  }
};

/// Computes the RMS norm of groups with a gate (graph/ops/gated_norm.h).
struct GatedNorm {
  struct Args {
    const float* x;
    const float* gate;
    const float* weight;  ///< [weight_size], repeated along a row
    float* y;
    int32_t cols, group, weight_size;
    float eps;
    int32_t gates_first;
  };
  static constexpr bool kLoads = false, kLoaderWaits = false;
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables&, Warp& w, RingPosition&) {
    const int groups = (tile.col_end - tile.col_begin) / a.group, all = (tile.row_end - tile.row_begin) * groups;
    for (int i = w.index(); i < all; i += kConsumerWarps) {
      const int first = tile.col_begin + i % groups * a.group;
      normalize(a, int64_t{tile.row_begin + i / groups} * a.cols + first, first, w);
    }
  }

 private:
  static TILE_FN Lanes<float> silu(const Lanes<float>& x) { return x / (exp_of(-x) + 1.0f); }
  static TILE_FN void normalize(const Args& a, int64_t row, int first, Warp& w) {
    Lanes<float> squares = 0.0f;
    for (int c = 0; c < a.group; c += kWarpLanes) {
      const Lanes<int> at = w.lane() + c;
      const Lanes<bool> mask = at < Lanes<int>(a.group);
      Lanes<float> x = w.load(a.x + row, at, mask);
      if (a.gates_first) x = x * silu(w.load(a.gate + row, at, mask));
      squares = squares + x * x;
    }
    const Lanes<float> scale = Lanes<float>(1.0f) / sqrt_of(warp_sum(w, squares) / static_cast<float>(a.group) + a.eps);
    for (int c = 0; c < a.group; c += kWarpLanes) {
      const Lanes<int> at = w.lane() + c;
      const Lanes<bool> mask = at < Lanes<int>(a.group);
      const Lanes<float> gate = silu(w.load(a.gate + row, at, mask));
      const Lanes<float> weight = w.load(a.weight, (at + first) % Lanes<int>(a.weight_size), mask);
      const Lanes<float> x = w.load(a.x + row, at, mask);
      w.store(a.y + row, at, a.gates_first ? x * gate * scale * weight : x * scale * weight * gate, mask);
    }
  }
};

/// Computes one layer of graph/ops/lstm.h from gates that already contain the input's part. A task has whole sequences,
/// token by token: the product with h in float32, 16 gates for each warp in turn, then the cell.
struct Lstm {
  struct Args {
    PanelFormat format;
    const uint8_t* weight;  ///< [4 hidden, hidden], packed
    const float* gates;     ///< [tokens, 4 hidden]
    const float* bias;      ///< [4 hidden] or nullptr
    float* y;
    int32_t hidden, dilation, panel_stride;
    int32_t num_partitions;
    RecurrentAddress state;  ///< state of this layer: h of `dilation` tokens, then c
  };
  /// Limit for h and the products of one token, which are in shared memory.
  static constexpr int kMaxHidden = kActivationBytes / 4 / 5 - 8;
  static constexpr bool kLoads = false, kLoaderWaits = false, kUsesShared = true;
  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables& step, Warp& w, RingPosition&) {
    const StateTables& state = step.groups[a.state.group];
    for (int s = tile.index; s < step.num_sequences; s += a.num_partitions) {
      const float* before = a.state.at(state, s, 0);
      float* const after = a.state.at(state, s, 1);
      each_of(2 * a.dilation * a.hidden, w, [&](const Lanes<int>& at, const Lanes<bool>& mask) {
        w.store(after, at, w.load(before, at, mask), mask);
      });
      const SequenceTable& rows = step.sequences[s];
      for (int t = 0; t < rows.rows; ++t) {
        float* h = after + (rows.first_position + t) % a.dilation * a.hidden;
        w.consumer_sync();  // state and products of the previous token are complete and read
        each_of(padded(a), w, [&](const Lanes<int>& at, const Lanes<bool>& mask) {
          w.store_shared(convert<uint32_t>(at * 4), w.load(h, at, mask & (at < Lanes<int>(a.hidden))), mask);
        });
        w.consumer_sync();
        for (int panel = w.index(); 16 * panel < 4 * a.hidden; panel += kConsumerWarps) multiply(a, panel, w);
        w.consumer_sync();
        cell(a, rows.row_begin + t, h, w);
      }
      w.consumer_sync();
    }
  }

 private:
  static TILE_FN int padded(const Args& a) { return (a.hidden + 7) / 8 * 8; }
  /// Calls f(i, mask) for i below n, shared among the consumer warps.
  template <class F>
  static TILE_FN void each_of(int n, Warp& w, const F& f) {
    for (int i = w.index() * kWarpLanes; i < n; i += kConsumerWarps * kWarpLanes) {
      const Lanes<int> at = w.lane() + i;
      f(at, at < Lanes<int>(n));
    }
  }
  /// Multiplies a panel with h. Lane (half, row) works as in LinearF32.
  static TILE_FN void multiply(const Args& a, int panel, Warp& w) {
    const uint8_t* bytes = a.weight + int64_t{panel} * a.panel_stride;
    const auto words = [&](const Lanes<int>& offset) {
      return w.load(reinterpret_cast<const uint32_t*>(bytes), offset / 4);
    };
    const Panel<decltype(words)> weights(a.format, words);
    const Lanes<int> row = w.lane() % 16, half = w.lane() / 16;
    const int per_line = a.format.planes == Planes::kF32 ? 1 : 2, lines = (a.hidden + per_line - 1) / per_line;
    Lanes<float> sum = 0.0f;
    for (int i = 0; 8 * i < a.hidden; ++i) {
      Lanes<float> v[4], x[4];
      weights.quad(row, half + 2 * i, lines, v);
      w.load_shared4(convert<uint32_t>(half * 16) + static_cast<uint32_t>(32 * i), x);
      for (int e = 0; e < 4; ++e) sum = sum + v[e] * x[e];
    }
    sum = sum + w.shuffle_xor(sum, 16);
    const Lanes<int> gate = row + 16 * panel;
    const Lanes<bool> mask = (half == Lanes<int>(0)) & (gate < Lanes<int>(4 * a.hidden));
    w.store_shared(convert<uint32_t>((gate + padded(a)) * 4),
                   sum * row_scales(a.format, bytes, a.panel_stride, row, mask, w), mask);
  }
  static TILE_FN void cell(const Args& a, int row, float* h, Warp& w) {
    float* const c = h + a.dilation * a.hidden;
    const float* gates = a.gates + int64_t{row} * 4 * a.hidden;
    each_of(a.hidden, w, [&](const Lanes<int>& at, const Lanes<bool>& mask) {
      const auto gate = [&](int number) {
        const Lanes<int> i = select(mask, at, Lanes<int>(0)) + number * a.hidden;
        Lanes<float> sum = w.load(gates, i, mask) + w.load_shared<float>(convert<uint32_t>((i + padded(a)) * 4));
        if (a.bias) sum = sum + w.load(a.bias, i, mask);
        return sum;
      };
      const Lanes<float> kept = w.load(c, at, mask) * sigmoid(gate(1)) + sigmoid(gate(0)) * tanh_of(gate(2));
      const Lanes<float> out = sigmoid(gate(3)) * tanh_of(kept);
      w.store(c, at, kept, mask);
      w.store(h, at, out, mask);
      w.store(a.y + int64_t{row} * a.hidden, at, out, mask);
    });
  }
  static TILE_FN Lanes<float> sigmoid(const Lanes<float>& x) { return Lanes<float>(1.0f) / (exp_of(-x) + 1.0f); }
};

}  // namespace redline::tiles
