// y = x W^T (+ bias) (+ residual) by bfloat16 tile products (tiles.h): x in XForm::kTiles, W packed in strips of 16 rows.
//
// An element of y is one float32 sum over tile products in rising k, 32 elements of K each, then what linear_tiles_end.h adds.
// How rows, columns and K are cut for the caches decides when a sum is set aside, not in which order it is made: the bits
// depend neither on the number of rows nor on n_begin or n_end.
//
// A round multiplies two strips of W by all panels of x over kStepsOfRound steps of K: products of 2 panels by 2 strips,
// their four sums in tiles. The strips' 32 KiB stay in the first-level cache while x streams by from the second. Sums wait
// in scratch for the next range of K and are asked for one product ahead; at the end they go to y past the caches where y
// is large. Strips are brought into tile order, as bfloat16, one round ahead: a few vector instructions between products,
// never many at once, cost nothing (the tile unit shares one of the two vector ports, so about 64 a step). bfloat16 weights
// are in that order as they lie. What the round after will read is asked for at the same time.
#pragma once

#include "kernels/cpu/linear_tiles_end.h"
#include "kernels/cpu/linear_tiles_weights.h"

namespace redline::REDLINE_ISA_NS {
namespace {

constexpr int64_t kStepsOfRound = 16;
constexpr int64_t kRoundElements = kStepsOfRound * kStepElements;
constexpr int64_t kMostRows = 512, kMostStrips = 64;  // whose sums fit into scratch
constexpr int64_t kPanelPairs = kMostRows / (2 * kXTileRows);
constexpr int64_t kSumsFloats = TilesEnd::kSumsFloats;
constexpr int64_t kLine = 64;

struct TilesScratch {
  alignas(64) float sums[kMostStrips / 2 * kPanelPairs * kSumsFloats];  // [pairs of strips][pairs of panels there are]
  alignas(64) uint8_t tiles[2][kStepsOfRound][2][kTileBytes];           // of this round and the next
  alignas(64) float done[kSumsFloats];
  alignas(64) float firsts[kMostRows * kStripRows];  // of TilesEnd
};

template <class Unit, class Weight>
class LinearTiles {
 public:
  explicit LinearTiles(const LinearArgs& args)
      : a_(args), scratch_(*static_cast<TilesScratch*>(args.scratch)),
        panel_bytes_(tiles_panel_bytes(args.in_features)), strip_bytes_(Weight::strip_bytes(args.in_features)),
        end_(args, scratch_.firsts) {}

  void run() {
    if (a_.rows == 0 || a_.n_begin >= a_.n_end) return;
    if (a_.in_features == 0) return run_nothing();
    Round now = first_round();
    start(now);
    for (int64_t index = 0; now.there; ++index) {
      const Round next = after(now);
      const Round later = next.there ? after(next) : next;
      multiply_round(now, next, later, index % 2);
      now = next;
    }
    end_.finish();
  }

 private:
  struct Round {
    int64_t row, n, k, strip;  // first row and column of the sums in scratch; of K; strip within them
    bool there;
  };
  Round first_round() const { return {0, a_.n_begin, 0, 0, true}; }
  int64_t panels(const Round& r) const { return (min_i64(kMostRows, a_.rows - r.row) + kXTileRows - 1) / kXTileRows; }
  /// A gated product has a strip of each matrix in turn.
  int64_t strips(const Round& r) const {
    const int64_t of_matrix = (a_.n_end - r.n + kStripRows - 1) / kStripRows;
    return min_i64(kMostStrips, end_.is_gated() ? 2 * of_matrix : of_matrix);
  }
  int64_t elements(const Round& r) const { return min_i64(kRoundElements, a_.in_features - r.k); }
  int64_t steps(const Round& r) const { return (elements(r) + kStepElements - 1) / kStepElements; }
  const uint8_t* x(const Round& r) const {
    return static_cast<const uint8_t*>(a_.x) + r.row / kXTileRows * panel_bytes_ + r.k / kStepElements * kTileBytes;
  }
  const uint8_t* strip(const Round& r, int64_t which) const {
    if (end_.is_gated())
      return static_cast<const uint8_t*>(which == 0 ? a_.weight : a_.end->up_weight) +
             column(r) / kStripRows * strip_bytes_;
    return static_cast<const uint8_t*>(a_.weight) + (column(r) / kStripRows + which) * strip_bytes_;
  }
  /// First column of a round's strips.
  int64_t column(const Round& r) const { return r.n + r.strip / 2 * end_.columns(); }
  bool is_alone(const Round& r) const { return r.strip + 1 == strips(r); }
  /// Strips are read where they lie.
  bool in_place(const Round& r) const { return Weight::kIsInTileOrder && elements(r) % kStepElements == 0; }

  Round after(Round r) const {
    r.strip += 2;
    if (r.strip < strips(r)) return r;
    r.strip = 0;
    r.k += kRoundElements;
    if (r.k < a_.in_features) return r;
    r.k = 0;
    r.n += kMostStrips / 2 * end_.columns();
    if (r.n < a_.n_end) return r;
    r.n = a_.n_begin;
    r.row += kMostRows;
    r.there = r.row < a_.rows;
    return r;
  }

  /// The first round that reads other elements of x than r.
  Round after_range(Round r) const {
    r.strip = strips(r);
    return after(r);
  }

  /// Brings the strips of a round into tile order, [step][strip], a part at a time.
  struct Expansion {
    const uint8_t* strip[2];
    int64_t step, count;  // elements of K from this step on
    uint8_t* tile;
    int64_t strips, parts;  // parts: left to do
    int64_t which = 0, part = 0;
    Weight weight = {};

    REDLINE_INLINE void next(const typename Weight::Constants& constants) {
      if (part > 0 || weight.begin(constants, strip[which], step, min_i64(kStepElements, count), tile)) [[likely]] {
        weight.expand(constants, part, tile);
        --parts;
        if (++part < kTileParts) return;
      } else {
        parts -= kTileParts;
      }
      part = 0;
      tile += kTileBytes;
      if (++which < strips) return;
      which = 0;
      ++step;
      count -= kStepElements;
    }
  };
  Expansion expansion(const Round& r, int side) const {
    if (!r.there || in_place(r)) return {{}, 0, 0, nullptr, 0, 0};
    const int64_t strips = is_alone(r) ? 1 : 2;
    return {{strip(r, 0), is_alone(r) ? nullptr : strip(r, 1)},
            r.k / kStepElements,
            elements(r),
            scratch_.tiles[side][0][0],
            strips,
            strips * steps(r) * kTileParts};
  }
  void start(const Round& r) const {
    Expansion e = expansion(r, 0);
    finish_expansion(e);
  }

  void multiply_round(const Round& r, const Round& next, const Round& later, int side) {
    const int64_t num_panels = panels(r), pairs = (num_panels + 1) / 2;
    const bool place = in_place(r), alone = is_alone(r), last = r.k + kRoundElements >= a_.in_features;
    Block b;
    b.steps = steps(r);
    b.first = r.k == 0;
    b.w[0] = place ? strip(r, 0) + Weight::step_at(r.k / kStepElements) : scratch_.tiles[side][0][0];
    b.w[1] = alone ? b.w[0] : place ? strip(r, 1) + Weight::step_at(r.k / kStepElements) : scratch_.tiles[side][0][1];
    b.w_step = place || alone ? kTileBytes : 2 * kTileBytes;
    const bool next_in_place = !next.there || in_place(next);
    // The weights to ask for: a share with every pair of panels, as many lines of both strips with every step.
    const Round& wanted = next_in_place ? next : later;
    const int64_t wanted_step = wanted.k / kStepElements, wanted_at = Weight::step_at(wanted_step);
    const int64_t wanted_bytes = wanted.there ? Weight::step_at(wanted_step + steps(wanted)) - wanted_at : 0;
    const int64_t asks = (wanted_bytes + pairs * b.steps * kLine - 1) / (pairs * b.steps * kLine);
    // So with the elements of x after these, a share with every round, where x has more rows than a range: then nothing but
    // this task has read them lately.
    const Round beyond = after_range(r);
    const int64_t x_bytes = a_.rows > kMostRows && beyond.there ? steps(beyond) * kTileBytes : 0,
                  x_lines = panels(beyond) * x_bytes / kLine;
    const int64_t rounds = (strips(r) + 1) / 2,
                  x_asks = (x_lines + rounds * pairs * b.steps - 1) / (rounds * pairs * b.steps);
    int64_t x_line = r.strip / 2 * pairs * b.steps * x_asks;
    Expansion between = expansion(next, 1 - side);
    b.parts = (between.parts + pairs * b.steps - 1) / (pairs * b.steps);
    float* sums = scratch_.sums + r.strip / 2 * pairs * kSumsFloats;
    for (int64_t p = 0; p < num_panels; p += 2, sums += kSumsFloats) {
      b.x = x(r) + p * panel_bytes_;

      b.sums_in = sums;
      b.rest = last ? end_.reads(r.row + p * kXTileRows, column(r)) : nullptr;
      b.sums_out = last ? scratch_.done : sums;
      const int64_t asked = p / 2 * b.steps * asks * kLine;
      b.asks = asked < wanted_bytes ? asks : 0;
      b.x_asks = x_line < x_lines ? x_asks : 0;
      if (b.x_asks > 0) {
        const int64_t byte = x_line * kLine;
        b.ask_x_end = x(beyond) + byte / x_bytes * panel_bytes_ + x_bytes;
        b.ask_x = b.ask_x_end - x_bytes + byte % x_bytes;
        b.x_skip = panel_bytes_ - x_bytes;
      }
      x_line += b.steps * x_asks;
      b.ask[0] = strip(wanted, 0) + wanted_at + asked;
      b.ask[1] = strip(wanted, is_alone(wanted) ? 0 : 1) + wanted_at + asked;
      const bool one = p + 1 == num_panels;
      if (alone) one ? multiply<1, 1>(b, between) : multiply<2, 1>(b, between);
      else one ? multiply<1, 2>(b, between) : multiply<2, 2>(b, between);
      if (last) end_.block(r.row + p * kXTileRows, p * kXTileRows, column(r), scratch_.done);
    }
    finish_expansion(between);
  }
  [[gnu::noinline]] static void finish_expansion(Expansion& e) {
    if (e.parts == 0) return;
    const typename Weight::Constants constants;
    while (e.parts > 0) e.next(constants);
  }

  struct Block {
    const uint8_t* x;     // first panel
    const uint8_t* w[2];  // strips
    int64_t w_step;       // bytes to the next step
    int64_t steps;
    bool first;
    const float* sums_in;
    float* sums_out;
    const uint8_t* ask[2];  // lines to ask for, `asks` of each with a step
    int64_t asks;
    const uint8_t *ask_x = nullptr, *ask_x_end = nullptr;  // x_asks lines of x with a step, x_skip bytes on at the end
    int64_t x_asks = 0, x_skip = 0;
    const float* rest;  // what the end will read, two rows with a step
    int64_t parts;      // of the next tiles, made with a step
  };

  /// Sums of what there is only once are left as they are.
  template <int kPanels, int kStrips>
  [[gnu::noinline]] void multiply(const Block& b, Expansion& expansion) {
    Unit& t = unit_;
    if (b.first) {
      t.template zero<0>();
      t.template zero<1>();
      t.template zero<2>();
      t.template zero<3>();
    } else {
      t.template load<0>(b.sums_in, 64);
      if constexpr (kStrips == 2) t.template load<1>(b.sums_in + 256, 64);
      if constexpr (kPanels == 2) t.template load<2>(b.sums_in + 512, 64);
      if constexpr (kPanels == 2 && kStrips == 2) t.template load<3>(b.sums_in + 768, 64);
    }
    const uint8_t *x = b.x, *w0 = b.w[0], *w1 = b.w[1], *ask0 = b.ask[0], *ask1 = b.ask[1];
    const int64_t steps = b.steps, w_step = b.w_step, panel_bytes = panel_bytes_, asks = b.asks, parts = b.parts;
    // The sums that the next product begins with are read from the second-level cache meanwhile.
    const float* soon = b.sums_in + kSumsFloats;
    const float* rest = b.rest;
    const int64_t y_stride = a_.y_stride;
    const int64_t x_asks = b.x_asks, x_skip = b.x_skip;
    const uint8_t *ask_x = b.ask_x, *ask_x_end = b.ask_x_end;
    Expansion e = expansion;
    const typename Weight::Constants constants;
    for (int64_t step = 0; step < steps; ++step, x += kTileBytes, w0 += w_step, w1 += w_step, soon += 64) {
      t.template load<6>(w0, 64);
      t.template load_once<4>(x, 64);
      t.template dot_bf16<0, 4, 6>();
      if constexpr (kStrips == 2) {
        t.template load<7>(w1, 64);
        t.template dot_bf16<1, 4, 7>();
      }
      if constexpr (kPanels == 2) {
        t.template load_once<5>(x + panel_bytes, 64);
        t.template dot_bf16<2, 5, 6>();
      }
      if constexpr (kPanels == 2 && kStrips == 2) t.template dot_bf16<3, 5, 7>();
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) __builtin_prefetch(soon + 16 * i, 0, 3);
      for (int64_t i = asks; i > 0; --i, ask0 += kLine, ask1 += kLine) {
        __builtin_prefetch(ask0, 0, 2);
        __builtin_prefetch(ask1, 0, 2);
      }
      for (int64_t i = x_asks; i > 0; --i) {
        __builtin_prefetch(ask_x, 0, 2);
        ask_x += kLine;
        if (ask_x == ask_x_end) ask_x += x_skip, ask_x_end += panel_bytes;
      }
      if (rest) {
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i, rest += y_stride) {
          __builtin_prefetch(rest, 0, 3);
          __builtin_prefetch(rest + kStripRows, 0, 3);
        }
      }
      for (int64_t i = parts; i > 0 && e.parts > 0; --i) e.next(constants);
    }
    expansion = e;
    t.template store<0>(b.sums_out, 64);
    if constexpr (kStrips == 2) t.template store<1>(b.sums_out + 256, 64);
    if constexpr (kPanels == 2) t.template store<2>(b.sums_out + 512, 64);
    if constexpr (kPanels == 2 && kStrips == 2) t.template store<3>(b.sums_out + 768, 64);
  }

  void run_nothing() const {
    for (int64_t row = 0; row < a_.rows; row += 2 * kXTileRows)
      for (int64_t n = a_.n_begin; n < a_.n_end; n += end_.columns()) {
        __builtin_memset(scratch_.done, 0, sizeof(scratch_.done));
        end_.block(row, row % kMostRows, n, scratch_.done);
      }
    end_.finish();
  }

  const LinearArgs& a_;
  TilesScratch& scratch_;
  const int64_t panel_bytes_, strip_bytes_;
  const TilesEnd end_;
  Unit unit_;
};

}  // namespace
}  // namespace redline::REDLINE_ISA_NS
