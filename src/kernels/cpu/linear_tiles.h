// y = x W^T (+ bias) (+ residual) by bfloat16 tile products (tiles.h): x in XForm::kTiles, W packed in strips of 16 rows.
//
// An element of y is one float32 sum over tile products in rising k, 32 elements of K each, then bias, then residual.
// How rows, columns and K are cut for the caches decides when a sum is set aside, not in which order it is made: the bits
// depend neither on the number of rows nor on n_begin or n_end.
//
// A round multiplies two strips of W by all panels of x over kStepsOfRound steps of K: products of 2 panels by 2 strips,
// their four sums in tiles. The strips' 32 KiB stay in the first-level cache while x streams by from the second, which
// keeps the range of K of all rows at hand for the other strips. Strips are brought into tile order, as bfloat16, one
// round ahead and tile by tile between the products, where vector instructions cost nothing; bfloat16 weights are in that
// order as they lie. What the round after will read is asked for at the same time. Sums wait in scratch for the next
// range of K, and at the end go straight to y where there is nothing to add.
#pragma once

#include "kernels/cpu/linear_finish.h"
#include "kernels/cpu/tiles.h"

namespace redline::REDLINE_ISA_NS {
namespace {

constexpr int64_t kTileBytes = kXTileRows * kXTileBytes;
constexpr int64_t kStepElements = 32;  // of K in a tile
constexpr int64_t kStepsOfRound = 16;
constexpr int64_t kRoundElements = kStepsOfRound * kStepElements;
constexpr int64_t kMostRows = 512, kMostStrips = 16;  // whose sums fit into scratch
constexpr int64_t kPanelPairs = kMostRows / (2 * kXTileRows);
constexpr int64_t kSumsFloats = 4 * 256;  // of a product block: [2 panels][2 strips][16][16]

struct TilesScratch {
  alignas(64) float sums[kMostStrips / 2][kPanelPairs][kSumsFloats];
  alignas(64) uint8_t tiles[2][kStepsOfRound][2][kTileBytes];  // of this round and the next
  alignas(64) float done[kSumsFloats];
};

/// Work done in small portions between products: portion i of `total` is due after i / total of the products.
template <class Portion>
struct Interleaved {
  Portion portion;
  int64_t total, slots;  // slots: steps of products in the round
  int64_t done = 0, credit = 0;

  REDLINE_INLINE void slot() {
    for (credit += total; credit >= slots && done < total; credit -= slots) portion(done++);
  }
  void rest() {
    while (done < total) portion(done++);
  }
};

/// How a packed weight becomes tiles (linear_tiles_weights.h). Functions, called once per tile, so that the loop below is
/// compiled once for all types.
struct TileWeight {
  bool is_in_tile_order;  ///< a packed strip is a run of tiles already
  int64_t (*strip_bytes)(int64_t in_features);
  int64_t (*step_at)(int64_t step);  ///< where in a strip 32 elements of K begin
  /// Elements [32 step, 32 step + count) of K of one strip as a tile, then zeros.
  void (*expand)(const uint8_t* strip, int64_t step, int64_t count, uint8_t* tile);
};

template <class Unit>
class LinearTiles {
 public:
  LinearTiles(const LinearArgs& args, const TileWeight& weight)
      : a_(args), weight_(weight), scratch_(*static_cast<TilesScratch*>(args.scratch)),
        panel_bytes_(tiles_panel_bytes(args.in_features)), strip_bytes_(weight.strip_bytes(args.in_features)) {}

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
  }

 private:
  struct Round {
    int64_t row, n, k, strip;  // first row and column of the sums in scratch; of K; strip within them
    bool there;
  };
  Round first_round() const { return {0, a_.n_begin, 0, 0, true}; }
  int64_t panels(const Round& r) const { return (min_i64(kMostRows, a_.rows - r.row) + kXTileRows - 1) / kXTileRows; }
  int64_t strips(const Round& r) const { return min_i64(kMostStrips, (a_.n_end - r.n + kStripRows - 1) / kStripRows); }
  int64_t elements(const Round& r) const { return min_i64(kRoundElements, a_.in_features - r.k); }
  int64_t steps(const Round& r) const { return (elements(r) + kStepElements - 1) / kStepElements; }
  const uint8_t* x(const Round& r) const {
    return static_cast<const uint8_t*>(a_.x) + r.row / kXTileRows * panel_bytes_ + r.k / kStepElements * kTileBytes;
  }
  const uint8_t* strip(const Round& r, int64_t which) const {
    return static_cast<const uint8_t*>(a_.weight) + (r.n / kStripRows + r.strip + which) * strip_bytes_;
  }
  bool is_alone(const Round& r) const { return r.strip + 1 == strips(r); }
  /// Strips are read where they lie.
  bool in_place(const Round& r) const { return weight_.is_in_tile_order && elements(r) % kStepElements == 0; }

  Round after(Round r) const {
    r.strip += 2;
    if (r.strip < strips(r)) return r;
    r.strip = 0;
    r.k += kRoundElements;
    if (r.k < a_.in_features) return r;
    r.k = 0;
    r.n += kMostStrips * kStripRows;
    if (r.n < a_.n_end) return r;
    r.n = a_.n_begin;
    r.row += kMostRows;
    r.there = r.row < a_.rows;
    return r;
  }

  /// Tile i of the two strips of a round.
  REDLINE_INLINE void expand(const Round& r, int64_t i, int side) {
    const int64_t count = min_i64(kStepElements, elements(r) - i / 2 * kStepElements);
    if (i % 2 == 0 || !is_alone(r))
      weight_.expand(strip(r, i % 2), r.k / kStepElements + i / 2, count, scratch_.tiles[side][i / 2][i % 2]);
  }
  REDLINE_INLINE void ask_for(const Round& r, int64_t i) {
    const int64_t step = r.k / kStepElements + i / 2;
    const uint8_t* begin = strip(r, i % 2) + weight_.step_at(step);
    const uint8_t* end = strip(r, i % 2) + weight_.step_at(step + 1);
    for (; begin < end; begin += 64) __builtin_prefetch(begin, 0, 2);
  }
  void start(const Round& r) {
    if (in_place(r)) return;
    for (int64_t i = 0; i < 2 * steps(r); ++i) expand(r, i, 0);
  }

  void multiply_round(const Round& r, const Round& next, const Round& later, int side) {
    const int64_t num_panels = panels(r);
    const bool place = in_place(r), alone = is_alone(r), last = r.k + kRoundElements >= a_.in_features;
    Block b;
    b.steps = steps(r);
    b.first = r.k == 0;
    b.w[0] = place ? strip(r, 0) + weight_.step_at(r.k / kStepElements) : scratch_.tiles[side][0][0];
    b.w[1] = alone ? b.w[0] : place ? strip(r, 1) + weight_.step_at(r.k / kStepElements) : scratch_.tiles[side][0][1];
    b.w_step = place ? kTileBytes : 2 * kTileBytes;
    const bool next_in_place = !next.there || in_place(next);
    const Round& wanted = next_in_place ? next : later;
    // x of the next range of K: a share of it with every pair of strips.
    Round x_next = r;
    x_next.strip = strips(r) - 1;
    x_next = after(x_next);
    const int64_t x_lines = x_next.there && (x_next.k != r.k || x_next.row != r.row) ? steps(x_next) * kXTileRows : 0;
    const int64_t pairs_of_strips = (strips(r) + 1) / 2;
    const int64_t x_begin = x_lines * (r.strip / 2) / pairs_of_strips,
                  x_end = x_lines * (r.strip / 2 + 1) / pairs_of_strips;
    const auto portion = [&](int64_t i) __attribute__((always_inline)) {
      if (!next_in_place) expand(next, i, 1 - side);
      if (wanted.there) ask_for(wanted, i);
    };
    Interleaved<decltype(portion)> between{portion, next.there ? 2 * steps(next) : 0, (num_panels + 1) / 2 * b.steps};
    for (int64_t p = 0; p < num_panels; p += 2) {
      b.x = x(r) + p * panel_bytes_;
      float* sums = scratch_.sums[r.strip / 2][p / 2];
      const int64_t row = r.row + p * kXTileRows, n = r.n + r.strip * kStripRows;
      const bool straight =
          last && !a_.bias && !a_.gate && !a_.residual && row + 2 * kXTileRows <= a_.rows && n + 2 * kStripRows <= a_.n_end;
      b.sums_in = sums;
      b.sums_out = last ? scratch_.done : sums;
      b.second_strip = 256;
      b.second_panel = 512;
      b.out_stride = 64;
      if (straight) {
        b.sums_out = a_.y + row * a_.y_stride + n;
        b.second_strip = kStripRows;
        b.second_panel = kXTileRows * a_.y_stride;
        b.out_stride = a_.y_stride * 4;
      }
      b.x_next = x(x_next) + p * panel_bytes_ + x_begin * kXTileBytes;
      b.x_next_lines = x_end - x_begin;
      const bool single = p + 1 == num_panels;
      if (alone) {
        single ? multiply<1, 1>(b, between) : multiply<2, 1>(b, between);
      } else {
        single ? multiply<1, 2>(b, between) : multiply<2, 2>(b, between);
      }
      if (last && !straight) finish(row, n, scratch_.done);
    }
    between.rest();
  }

  struct Block {
    const uint8_t* x;     // first panel
    const uint8_t* w[2];  // strips
    int64_t w_step;       // bytes to the next step
    int64_t steps;
    bool first;
    const float* sums_in;
    float* sums_out;
    int64_t second_strip, second_panel;  // elements from the first tile there
    int64_t out_stride;                  // bytes between rows
    const uint8_t* x_next;               // lines to ask for, of both panels
    int64_t x_next_lines;
  };

  template <int kPanels, int kStrips, class Between>
  [[gnu::noinline]] void multiply(const Block& b, Between& between) {
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
    const uint8_t *x = b.x, *w0 = b.w[0], *w1 = b.w[1];
    const int64_t steps = b.steps, w_step = b.w_step, panel_bytes = panel_bytes_;
    const uint8_t* x_next = b.x_next;
    int64_t x_next_lines = b.x_next_lines;
    for (int64_t step = 0; step < steps; ++step, x += kTileBytes, w0 += w_step, w1 += w_step) {
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
        if constexpr (kStrips == 2) t.template dot_bf16<3, 5, 7>();
      }
      between.slot();
      for (int i = 0; i < 2 && x_next_lines > 0; ++i, --x_next_lines, x_next += kXTileBytes) {
        __builtin_prefetch(x_next, 0, 2);
        if constexpr (kPanels == 2) __builtin_prefetch(x_next + panel_bytes, 0, 2);
      }
    }
    t.template store<0>(b.sums_out, b.out_stride);
    if constexpr (kStrips == 2) t.template store<1>(b.sums_out + b.second_strip, b.out_stride);
    if constexpr (kPanels == 2) t.template store<2>(b.sums_out + b.second_panel, b.out_stride);
    if constexpr (kPanels == 2 && kStrips == 2)
      t.template store<3>(b.sums_out + b.second_panel + b.second_strip, b.out_stride);
  }

  void finish(int64_t row, int64_t n, const float* sums) const {
    const int64_t rows = min_i64(2 * kXTileRows, a_.rows - row);
    for (int64_t r = 0; r < rows; ++r, sums += kStripRows) {
      if (r == kXTileRows) sums += 256;
      finish_strip(a_, row + r, n, load_strip(sums));
      finish_strip(a_, row + r, n + kStripRows, load_strip(sums + 256));
    }
  }
  void run_nothing() const {
    for (int64_t row = 0; row < a_.rows; ++row)
      for (int64_t n = a_.n_begin; n < a_.n_end; n += kStripRows) finish_strip(a_, row, n, zero_strip());
  }

  const LinearArgs& a_;
  const TileWeight& weight_;
  TilesScratch& scratch_;
  const int64_t panel_bytes_, strip_bytes_;
  Unit unit_;
};

}  // namespace
}  // namespace redline::REDLINE_ISA_NS
