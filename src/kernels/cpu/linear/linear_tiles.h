// y = x W^T (+ bias) (+ residual) with bfloat16 tile products (tiles.h): x in ActivationLayout::kBf16Tiled, W packed in
// row panels of 16 rows.
//
// An element of y is one float32 accumulator over tile products in rising k, 32 elements of K each, then the epilogue
// of linear_tiles_end.h. Cache blocking over rows, columns and K decides when accumulators are spilled, not the order
// of additions: the bits depend neither on the number of rows nor on n_begin or n_end.
//
// A round multiplies two row panels of W by all panels of x over kStepsOfRound steps of K, in products of 2 by 2 panels
// whose four accumulators stay in tiles. The 32 KiB of W stay in L1 while x streams from L2.
//
// Accumulators are kept in scratch between ranges of K and prefetched 1.5 products ahead. The tile unit renames its
// registers: when accumulators are exchanged one by one, only the stores cost time. The epilogue writes a large y with
// non-temporal stores, two rows per step of the next product.
//
// Row panels are converted to bfloat16 tile order one round ahead. About 64 vector instructions per step, spread evenly
// between tile products, are free (the tile unit shares one of the two vector ports); bursts are not. Packed bfloat16
// weights already are in tile order. Data of later rounds is prefetched at an even rate: with two or more lines per
// step, L2 misses delay L2 hits.
#pragma once

#include "kernels/cpu/linear/linear_tiles_end.h"
#include "kernels/cpu/linear/linear_tiles_weights.h"

namespace redline::REDLINE_ISA_NS {
namespace {

inline constexpr int64_t kStepsOfRound = 16;
inline constexpr int64_t kRoundElements = kStepsOfRound * kStepElements;
inline constexpr int64_t kMaxRows = 512, kMaxRowPanels = 64;  // limits with accumulators in scratch
inline constexpr int64_t kPanelPairs = kMaxRows / (2 * kXTileRows);
inline constexpr int64_t kSumsFloats = TilesEnd::kSumsFloats;
inline constexpr int64_t kLine = 64;
inline constexpr int64_t kXBytesAtHand = 1 << 20, kMinPrefetchRowPanels = 32;

struct TilesScratch {
  alignas(64) float sums[kMaxRowPanels / 2 * kPanelPairs * kSumsFloats];  // [pairs of W panels][pairs of x panels]
  alignas(64) uint8_t tiles[2][kStepsOfRound][2][kTileBytes];             // tiles of this round and the next
  alignas(64) float done[2][kSumsFloats];                                 // sums in the epilogue, and the next ones
  alignas(64) float firsts[kMaxRows * kRowPanelRows];                     // memory for TilesEnd
};

template <class Unit, class Weight>
class LinearTiles {
 public:
  explicit LinearTiles(const LinearArgs& args)
      : a_(args), scratch_(*static_cast<TilesScratch*>(args.scratch)),
        panel_bytes_(tiles_panel_bytes(args.in_features)), row_panel_bytes_(Weight::row_panel_bytes(args.in_features)),
        end_(args, scratch_.firsts), range_rows_(near_equal(args.rows, kMaxRows, 2 * kXTileRows)),
        range_row_panels_(
            near_equal((args.n_end - args.n_begin + end_.columns() - 1) / end_.columns() * 2, kMaxRowPanels, 4)) {}

  void run() {
    if (a_.rows == 0 || a_.n_begin >= a_.n_end) return;
    if (a_.in_features == 0) return run_nothing();
    Round now = first_round();
    start(now);
    unit_.template zero<0>();
    unit_.template zero<1>();
    unit_.template zero<2>();
    unit_.template zero<3>();
    for (int64_t index = 0; now.there; ++index) {
      const Round next = after(now);
      const Round later = next.there ? after(next) : next;
      multiply_round(now, next, later, index % 2);
      now = next;
    }
    finish_ending();
    end_.finish();
  }

 private:
  struct Round {
    int64_t row, n, k, row_panel;  // first row and column of the accumulators in scratch; k; W panel within the range
    bool there;
  };
  /// Splits `all` into as few parts as possible, each at most `max`, and returns their size.
  static int64_t near_equal(int64_t all, int64_t max, int64_t grain) {
    const int64_t parts = max_i64(1, (all + max - 1) / max);
    return ((all + parts - 1) / parts + grain - 1) / grain * grain;
  }
  Round first_round() const { return {0, a_.n_begin, 0, 0, true}; }
  int64_t panels(const Round& r) const { return (min_i64(range_rows_, a_.rows - r.row) + kXTileRows - 1) / kXTileRows; }
  /// Returns the number of row panels. For a gated product, row panels of the two matrices alternate.
  int64_t row_panels(const Round& r) const {
    const int64_t of_matrix = (a_.n_end - r.n + kRowPanelRows - 1) / kRowPanelRows;
    return min_i64(range_row_panels_, end_.is_gated() ? 2 * of_matrix : of_matrix);
  }
  int64_t elements(const Round& r) const { return min_i64(kRoundElements, a_.in_features - r.k); }
  int64_t steps(const Round& r) const { return (elements(r) + kStepElements - 1) / kStepElements; }
  const uint8_t* x(const Round& r) const {
    return static_cast<const uint8_t*>(a_.x) + r.row / kXTileRows * panel_bytes_ + r.k / kStepElements * kTileBytes;
  }
  const uint8_t* row_panel(const Round& r, int64_t which) const {
    if (end_.is_gated())
      return static_cast<const uint8_t*>(which == 0 ? a_.weight : a_.end->up_weight) +
             column(r) / kRowPanelRows * row_panel_bytes_;
    return static_cast<const uint8_t*>(a_.weight) + (column(r) / kRowPanelRows + which) * row_panel_bytes_;
  }
  /// Returns the first column of a round.
  int64_t column(const Round& r) const { return r.n + r.row_panel / 2 * end_.columns(); }
  bool is_alone(const Round& r) const { return r.row_panel + 1 == row_panels(r); }
  /// Returns true if W is read directly, without conversion.
  bool in_place(const Round& r) const { return Weight::kIsInTileOrder && elements(r) % kStepElements == 0; }

  /// Returns true if the next range of x is prefetched: when x is too large for L2 and there are enough row panels to
  /// spread the prefetch over.
  bool prefetches_x(const Round& r) const {
    return a_.rows > kMaxRows ||
           (a_.rows * a_.in_features * 2 > kXBytesAtHand && row_panels(r) >= kMinPrefetchRowPanels);
  }

  Round after(Round r) const {
    r.row_panel += 2;
    if (r.row_panel < row_panels(r)) return r;
    r.row_panel = 0;
    r.k += kRoundElements;
    if (r.k < a_.in_features) return r;
    r.k = 0;
    r.n += range_row_panels_ / 2 * end_.columns();
    if (r.n < a_.n_end) return r;
    r.n = a_.n_begin;
    r.row += range_rows_;
    r.there = r.row < a_.rows;
    return r;
  }

  /// Returns the first round that reads other elements of x than r.
  Round after_range(Round r) const {
    r.row_panel = row_panels(r);
    return after(r);
  }

  /// The conversion of a round's row panels to tile order, [step][panel], one part at a time.
  struct Expansion {
    const uint8_t* row_panel[2];
    int64_t step, count;  // elements of K from this step on
    uint8_t* tile;
    int64_t row_panels, parts;  // parts: remaining
    int64_t which = 0, part = 0;
    Weight weight = {};

    REDLINE_INLINE void next(const typename Weight::Constants& constants) {
      if (part > 0 || weight.begin(constants, row_panel[which], step, min_i64(kStepElements, count), tile)) [[likely]] {
        weight.expand(constants, part, tile);
        --parts;
        if (++part < kTileParts) return;
      } else {
        parts -= kTileParts;
      }
      part = 0;
      tile += kTileBytes;
      if (++which < row_panels) return;
      which = 0;
      ++step;
      count -= kStepElements;
    }
  };
  Expansion expansion(const Round& r, int side) const {
    if (!r.there || in_place(r)) return {{}, 0, 0, nullptr, 0, 0};
    const int64_t row_panels = is_alone(r) ? 1 : 2;
    return {{row_panel(r, 0), is_alone(r) ? nullptr : row_panel(r, 1)},
            r.k / kStepElements,
            elements(r),
            scratch_.tiles[side][0][0],
            row_panels,
            row_panels * steps(r) * kTileParts};
  }
  void start(const Round& r) const {
    Expansion e = expansion(r, 0);
    finish_expansion(e);
  }

  // Prefetches for later rounds, the same number of lines at every step: the row panels of one round, then a share of
  // the next range of x. Two streams at a time, which memory serves faster than one.
  struct Lines {
    const uint8_t *next, *end;  // rest of the first stream
    int64_t second;             // offset of the second stream in bytes
  };
  struct Wanted {
    const uint8_t *row_panel[2], *x;
    int64_t row_panel_lines;         // cache lines of each; 0: already prefetched
    int64_t x_bytes, x_line, x_end;  // bytes of an x panel; positions in lines
  };
  void prefetch_next(const Round& row_panels_of, const Round& r, int64_t steps_here) {
    wanted_ = {};
    if (row_panels_of.there) {
      const int64_t step = row_panels_of.k / kStepElements, at = Weight::step_at(step);
      wanted_.row_panel_lines = (Weight::step_at(step + steps(row_panels_of)) - at + kLine - 1) / kLine;
      for (int64_t i = 0; i < 2; ++i)
        wanted_.row_panel[i] = row_panel(row_panels_of, is_alone(row_panels_of) ? 0 : i) + at;
    }
    const Round beyond = after_range(r);
    if (beyond.there && prefetches_x(r)) {
      const int64_t share = (row_panels(r) + 1) / 2;
      wanted_.x = x(beyond);
      wanted_.x_bytes = steps(beyond) * kTileBytes;
      const int64_t lines = panels(beyond) * wanted_.x_bytes / kLine;
      wanted_.x_line = lines * (r.row_panel / 2) / share;
      wanted_.x_end = lines * (r.row_panel / 2 + 1) / share;
    }
    prefetches_ = (wanted_.row_panel_lines + (wanted_.x_end - wanted_.x_line + 1) / 2 + steps_here - 1) / steps_here;
    prefetched_ = next_lines();
  }
  [[gnu::noinline]] Lines next_lines() {
    Wanted& w = wanted_;
    if (w.row_panel_lines > 0) {
      const int64_t bytes = w.row_panel_lines * kLine;
      w.row_panel_lines = 0;
      return {w.row_panel[0], w.row_panel[0] + bytes, w.row_panel[1] - w.row_panel[0]};
    }
    if (w.x_line < w.x_end) {
      const int64_t byte = w.x_line * kLine, in_panel = byte % w.x_bytes,
                    lines = min_i64((w.x_bytes - in_panel) / kLine, w.x_end - w.x_line), half = (lines + 1) / 2 * kLine;
      w.x_line += lines;
      const uint8_t* line = w.x + byte / w.x_bytes * panel_bytes_ + in_panel;
      return {line, line + half, half};
    }
    return {scratch_.tiles[0][0][0], scratch_.tiles[0][0][0] + sizeof(scratch_.tiles), 0};  // an empty range
  }

  void multiply_round(const Round& r, const Round& next, const Round& later, int side) {
    const int64_t num_panels = panels(r), pairs = (num_panels + 1) / 2;
    const bool place = in_place(r), alone = is_alone(r), last = r.k + kRoundElements >= a_.in_features;
    Block b;
    b.steps = steps(r);
    b.w[0] = place ? row_panel(r, 0) + Weight::step_at(r.k / kStepElements) : scratch_.tiles[side][0][0];
    b.w[1] = alone   ? b.w[0]
             : place ? row_panel(r, 1) + Weight::step_at(r.k / kStepElements)
                     : scratch_.tiles[side][0][1];
    b.w_step = place || alone ? kTileBytes : 2 * kTileBytes;
    const bool next_in_place = !next.there || in_place(next);
    prefetch_next(next_in_place ? next : later, r, pairs * b.steps);
    Expansion between = expansion(next, 1 - side);
    b.parts = (between.parts + pairs * b.steps - 1) / (pairs * b.steps);
    float* sums = scratch_.sums + r.row_panel / 2 * pairs * kSumsFloats;
    const float* const next_sums =
        next.there && next.k > 0 ? scratch_.sums + next.row_panel / 2 * pairs * kSumsFloats : nullptr;
    for (int64_t p = 0; p < num_panels; p += 2, sums += kSumsFloats) {
      b.x = x(r) + p * panel_bytes_;
      b.soon = sums + kSumsFloats + kSumsFloats / 2;
      b.sums_next = p + 2 < num_panels ? (r.k > 0 ? sums + kSumsFloats : nullptr) : next_sums;
      b.rest = last ? end_.reads(r.row + p * kXTileRows, column(r)) : nullptr;
      b.sums_out = last ? scratch_.done[done_] : sums;
      const bool one = p + 1 == num_panels;
      if (alone) one ? multiply<1, 1>(b, between) : multiply<2, 1>(b, between);
      else if (one) multiply<1, 2>(b, between);
      else last ? multiply<2, 2, true>(b, between) : multiply<2, 2>(b, between);
      if (!last) continue;
      finish_ending();
      const int64_t row = r.row + p * kXTileRows;
      ending_ = {0, min_i64(TilesEnd::kPanels * kXTileRows, a_.rows - row), row, p * kXTileRows, column(r), b.sums_out};
      if (!end_.is_streaming()) finish_ending();
      else done_ = 1 - done_;
    }
    finish_expansion(between);
  }
  [[gnu::noinline]] static void finish_expansion(Expansion& e) {
    if (e.parts == 0) return;
    const typename Weight::Constants constants;
    while (e.parts > 0) e.next(constants);
  }

  /// A pending epilogue: two rows per step of the next product.
  struct Ending {
    int64_t row = 0, end = 0;  // remaining rows; the other members are unset when there are none
    int64_t first_row, row_in_range, n;
    float* sums;
  };
  REDLINE_INLINE void end_rows(int64_t count) {
    if (ending_.row >= ending_.end) return;
    const int64_t to = min_i64(ending_.end, ending_.row + count);
    end_.part(ending_.first_row, ending_.row_in_range, ending_.n, ending_.sums, ending_.row, to);
    ending_.row = to;
  }
  [[gnu::noinline]] void finish_ending() {
    if (ending_.row < ending_.end) end_rows(ending_.end);
  }

  struct Block {
    const uint8_t* x;     // first x panel
    const uint8_t* w[2];  // W panels
    int64_t w_step;       // bytes to the next step
    int64_t steps;
    float* sums_out;
    const float* sums_next;  // initial accumulators of the next product; nullptr: zeros
    const float* soon;       // accumulators to prefetch, 64 per step
    const float* rest;       // residual to prefetch for the epilogue, two rows per step
    int64_t parts;           // parts of the next tiles that are converted per step
  };

  /// Stores one accumulator tile and loads the next while the other tiles are being multiplied.
  template <int tile>
  REDLINE_INLINE void exchange(const Block& b) {
    unit_.template store<tile>(b.sums_out + tile * TilesEnd::kTileFloats, 64);
    if (b.sums_next) unit_.template load<tile>(b.sums_next + tile * TilesEnd::kTileFloats, 64);
    else unit_.template zero<tile>();
  }

  /// Multiplies a block. The initial accumulators must be in the tiles. With one panel of x or W, the accumulators of
  /// the missing one are undefined.
  template <int kPanels, int kRowPanels, bool kLast = false>
  [[gnu::noinline]] void multiply(const Block& b, Expansion& expansion) {
    Unit& t = unit_;
    const uint8_t *x = b.x, *w0 = b.w[0], *w1 = b.w[1];
    const int64_t steps = b.steps, w_step = b.w_step, panel_bytes = panel_bytes_, parts = b.parts;
    const int64_t prefetches = prefetches_;
    Lines prefetched = prefetched_;
    // Prefetches accumulators of the next products from L2 meanwhile.
    const float* soon = b.soon;
    const float* rest = b.rest;
    const int64_t y_stride = a_.y_stride;
    Expansion e = expansion;
    const typename Weight::Constants constants;
    for (int64_t step = 0; step < steps; ++step, x += kTileBytes, w0 += w_step, w1 += w_step, soon += 64) {
      t.template load<6>(w0, 64);
      t.template load_once<4>(x, 64);
      t.template dot_bf16<0, 4, 6>();
      if constexpr (kRowPanels == 2) {
        t.template load<7>(w1, 64);
        t.template dot_bf16<1, 4, 7>();
      }
      if constexpr (kPanels == 2) {
        t.template load_once<5>(x + panel_bytes, 64);
        t.template dot_bf16<2, 5, 6>();
      }
      if constexpr (kPanels == 2 && kRowPanels == 2) t.template dot_bf16<3, 5, 7>();
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) __builtin_prefetch(soon + 16 * i, 0, 3);
      for (int64_t i = prefetches; i > 0; --i) {
        __builtin_prefetch(prefetched.next, 0, 2);
        __builtin_prefetch(prefetched.next + prefetched.second, 0, 2);
        prefetched.next += kLine;
        if (prefetched.next == prefetched.end) [[unlikely]]
          prefetched = next_lines();
      }
      if (kLast && rest) {
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i, rest += y_stride) {
          __builtin_prefetch(rest, 0, 3);
          __builtin_prefetch(rest + kRowPanelRows, 0, 3);
        }
      }
      if constexpr (kLast) end_rows(2);
      if constexpr (!Weight::kIsInTileOrder)
        for (int64_t i = parts; i > 0 && e.parts > 0; --i) e.next(constants);
    }
    expansion = e;
    prefetched_ = prefetched;
    exchange<0>(b);
    exchange<1>(b);
    exchange<2>(b);
    exchange<3>(b);
  }

  void run_nothing() const {
    for (int64_t row = 0; row < a_.rows; row += 2 * kXTileRows)
      for (int64_t n = a_.n_begin; n < a_.n_end; n += end_.columns()) {
        __builtin_memset(scratch_.done[0], 0, sizeof(scratch_.done[0]));
        end_.block(row, row % kMaxRows, n, scratch_.done[0]);
      }
    end_.finish();
  }

  const LinearArgs& a_;
  TilesScratch& scratch_;
  const int64_t panel_bytes_, row_panel_bytes_;
  const TilesEnd end_;
  const int64_t range_rows_, range_row_panels_;
  Ending ending_;
  int64_t done_ = 0;
  int64_t prefetches_ = 0;  // prefetched lines per step
  Lines prefetched_ = {};
  Wanted wanted_;
  Unit unit_;
};

}  // namespace
}  // namespace redline::REDLINE_ISA_NS
