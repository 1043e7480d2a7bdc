// linear_tiles for few rows: accumulators of two row panels of W stay in tiles along all of K, and the time goes into
// converting W to tile order. Each 64 bytes of W are converted once, a few steps ahead of their product, into a ring
// buffer in L1; weights in tile order are read directly. The accumulation order and so the bits are those of
// linear_tiles.h.
//
// Up to 2 panels of x are multiplied with two row panels of W at a time. With 3 or 4 panels of x the tiles hold the
// accumulators of one row panel: a pair is two passes over x, more bandwidth than L2 delivers when no conversion is
// needed.
//
// A few vector instructions follow each tile product, evenly spread. Converting a whole tile at once blocks the issue
// of the next products and halves the speed at 16 rows.
#pragma once

#include "kernels/cpu/linear/linear_tiles.h"

namespace redline::REDLINE_ISA_NS {
namespace {

template <class Unit, class Weight>
class FewTiles {
 public:
  explicit FewTiles(const LinearArgs& args)
      : a_(args), scratch_(*static_cast<TilesScratch*>(args.scratch)),
        panel_bytes_(tiles_panel_bytes(args.in_features)), row_panel_bytes_(Weight::row_panel_bytes(args.in_features)),
        steps_((args.in_features + kStepElements - 1) / kStepElements), end_(args, scratch_.firsts) {}

  /// Returns true if this kernel handles the call. (The last step of an odd K is not in tile order.)
  static bool takes(const LinearArgs& a) {
    return a.rows > 0 && a.rows <= kMaxPanels * kXTileRows && a.n_begin < a.n_end && a.in_features > 0 &&
           (!Weight::kIsInTileOrder || a.in_features % kStepElements == 0);
  }

  void run() {
    feed_ = {a_.n_begin, {row_panel(a_.n_begin, 0), row_panel(a_.n_begin, 1)}, 0, 0, 0};
    switch ((a_.rows + kXTileRows - 1) / kXTileRows) {
      case 1: return run_pairs<1>();
      case 2: return run_pairs<2>();
      default: break;
    }
    if constexpr (kMaxPanels > 2) {
      if (a_.rows <= 3 * kXTileRows) run_row_panels<3>();
      else run_row_panels<4>();
    }
  }

 private:
  using Constants = typename Weight::Constants;
  static constexpr int64_t kMaxPanels = Weight::kIsInTileOrder ? 2 : 4;
  static constexpr int64_t kAheadSteps = 4;  // a tile is not read while its stores are in flight
  static constexpr int64_t kRingSteps = 2 * kAheadSteps;
  static constexpr int64_t kRingBytes = kRingSteps * 2 * kTileBytes;
  static constexpr int64_t kAheadBytes = 2048;  // prefetch distance in a packed row panel
  static constexpr int64_t kStepsToEnd = 4;     // steps until a pair's accumulators are in L1

  /// The next step to convert.
  struct Feed {
    int64_t n;
    const uint8_t* row_panel[2];
    int64_t which, step, slot;
  };

  /// Returns a row panel. For a gated product the second row panel is that of the second matrix. An unpaired last panel
  /// is passed twice and converted once; the second one's tiles are ignored.
  const uint8_t* row_panel(int64_t n, int which) const {
    const void* weight = a_.weight;
    if (end_.is_gated()) {
      if (which == 1) weight = a_.end->up_weight;
    } else if (!is_alone(n)) {
      n += which * kRowPanelRows;
    }
    return static_cast<const uint8_t*>(weight) + n / kRowPanelRows * row_panel_bytes_;
  }
  REDLINE_INLINE bool is_alone(int64_t n) const { return !end_.is_gated() && n + kRowPanelRows >= a_.n_end; }
  uint8_t* ring(int64_t slot, int which) const { return scratch_.tiles[0][slot % kRingSteps][which]; }
  REDLINE_INLINE void next_pair() {
    feed_.step = 0;
    feed_.n += end_.columns();
    feed_.row_panel[0] = row_panel(feed_.n, 0), feed_.row_panel[1] = row_panel(feed_.n, 1);
  }
  REDLINE_INLINE bool is_done() const { return Weight::kIsInTileOrder || feed_.n >= a_.n_end; }
  REDLINE_INLINE static void ask(const uint8_t* row_panel, int64_t step) {
    const int64_t end = Weight::step_at(step + 1);
    for (int64_t byte = Weight::step_at(step); byte < end; byte += kLine)
      __builtin_prefetch(row_panel + byte + kAheadBytes, 0, 2);
  }

  REDLINE_INLINE static void ask_step(const uint8_t* at) {
#pragma GCC unroll 16
    for (int64_t byte = 0; byte < Weight::kStepBytes; byte += kLine) __builtin_prefetch(at + byte, 0, 2);
  }

  /// A tile that is converted in four parts; a no-op when nothing is left to convert.
  struct Tile {
    Weight weight;
    uint8_t* tile;
    bool is_there;

    REDLINE_INLINE void expand(const Constants& constants, int64_t part) const {
      if (is_there) weight.expand(constants, part, tile);
    }
  };
  REDLINE_INLINE void begin(const Constants& constants, int which, uint8_t* to, Tile& t) const {
    t.is_there = false;
    const uint8_t* row_panel = feed_.row_panel[which];
    if (is_done() || (which == 1 && row_panel == feed_.row_panel[0])) return;
    ask(row_panel, feed_.step);
    t.tile = to;
    t.is_there = t.weight.begin(constants, row_panel, feed_.step,
                                min_i64(kStepElements, a_.in_features - feed_.step * kStepElements), to);
  }

  template <int kPanels>
  void run_pairs() {
    const Constants constants;
    for (int64_t i = 0; i < kAheadSteps; ++i) {
      for (int which = 0; which < 2; ++which) {
        Tile tile;
        begin(constants, which, ring(feed_.slot, which), tile);
        for (int part = 0; part < kTileParts; ++part) tile.expand(constants, part);
      }
      advance_pair();
    }
    for (int64_t n = a_.n_begin; n < a_.n_end; n += end_.columns()) multiply_pair<kPanels>(n, constants);
    end_pair();
    end_.finish();
  }
  REDLINE_INLINE void advance_pair() {
    if (is_done()) return;
    ++feed_.slot;
    if (++feed_.step == steps_) next_pair();
  }

  /// Applies the epilogue of the pending pair, if any. Not inlined, so that the constants of the loops stay in
  /// registers.
  [[gnu::noinline]] void end_pair() {
    if (due_n_ < 0) return;
    end_.block(0, 0, due_n_, scratch_.done[0]);
    due_n_ = -1;
  }

  /// Multiplies a pair. The products are split where the conversion moves on to the next pair. With two panels of x
  /// they are also split at the epilogue of the previous pair: by then its accumulators are in L1, while an immediate
  /// epilogue would stall. (With one panel that split costs more than it saves.)
  template <int kPanels>
  [[gnu::noinline]] void multiply_pair(int64_t n, const Constants& all_constants) {
    Unit& t = unit_;
    t.template zero<0>();
    t.template zero<1>();
    t.template zero<2>();
    t.template zero<3>();
    const Constants constants = all_constants;
    for (int64_t step = 0, count; step < steps_; step += count) {
      count = min_i64(steps_ - step, steps_ - feed_.step);
      if (kPanels == 2 && due_n_ >= 0) {
        if (step < kStepsToEnd) count = min_i64(count, kStepsToEnd - step);
        else end_pair();
      }
      if constexpr (Weight::kIsInTileOrder) multiply_in_place<kPanels>(n, step, count);
      else if (is_done()) multiply_steps<kPanels, 0>(step, count, constants);
      else if (feed_.row_panel[1] == feed_.row_panel[0]) multiply_steps<kPanels, 1>(step, count, constants);
      else multiply_steps<kPanels, 2>(step, count, constants);
    }
    if constexpr (kPanels == 2) end_pair();
    t.template store<0>(scratch_.done[0], 64);
    t.template store<1>(scratch_.done[0] + TilesEnd::kTileFloats, 64);
    if constexpr (kPanels == 2) {
      t.template store<2>(scratch_.done[0] + TilesEnd::kPanelFloats, 64);
      t.template store<3>(scratch_.done[0] + TilesEnd::kPanelFloats + TilesEnd::kTileFloats, 64);
    }
    due_n_ = n;
    if constexpr (kPanels == 1) end_pair();
  }
  template <int kPanels>
  REDLINE_INLINE void multiply_in_place(int64_t n, int64_t first, int64_t count) {
    Unit& t = unit_;
    const uint8_t* place[2] = {row_panel(n, 0), row_panel(n, 1)};
    const auto* x = static_cast<const uint8_t*>(a_.x) + first * kTileBytes;
    for (int64_t step = first; step < first + count; ++step, x += kTileBytes) {
      ask(place[0], step), ask(place[1], step);
      t.template load<6>(place[0] + Weight::step_at(step), 64);
      t.template load_once<4>(x, 64);
      t.template dot_bf16<0, 4, 6>();
      if constexpr (kPanels == 2) {
        t.template load_once<5>(x + panel_bytes_, 64);
        t.template dot_bf16<2, 5, 6>();
      }
      t.template load<7>(place[1] + Weight::step_at(step), 64);
      t.template dot_bf16<1, 4, 7>();
      if constexpr (kPanels == 2) t.template dot_bf16<3, 5, 7>();
    }
  }
  /// Multiplies `count` steps from `first` on. kRowPanels: row panels being converted, from step feed_.step on. The
  /// loop uses local copies only: it stores through uint8_t*, after which the compiler would reload members.
  template <int kPanels, int kRowPanels>
  REDLINE_INLINE void multiply_steps(int64_t first, int64_t count, const Constants& constants) {
    Unit& t = unit_;
    const auto* x = static_cast<const uint8_t*>(a_.x) + first * kTileBytes;
    const int64_t panel_bytes = panel_bytes_;
    uint8_t* const tiles = scratch_.tiles[0][0][0];
    const uint8_t *from0 = feed_.row_panel[0], *from1 = feed_.row_panel[1];
    const int64_t row_panel_bytes = row_panel_bytes_, skipped = end_.is_gated() ? 0 : row_panel_bytes_,
                  elements = a_.in_features;
    int64_t feed = feed_.step, slot = slot_ * 2 * kTileBytes;
    for (const uint8_t* const end = x + count * kTileBytes; x < end; x += kTileBytes, ++feed, slot += 2 * kTileBytes) {
      uint8_t* const w = tiles + (slot & (kRingBytes - 1));
      uint8_t* const to = tiles + ((slot + kRingBytes / 2) & (kRingBytes - 1));
      Weight weight;
      bool is_there = false;
      t.template load<6>(w, 64);
      t.template load_once<4>(x, 64);
      t.template dot_bf16<0, 4, 6>();
      int64_t ahead = feed * Weight::kStepBytes + kAheadBytes;
      if (ahead >= row_panel_bytes) ahead += skipped;
      if constexpr (kRowPanels > 0) {
        ask_step(from0 + ahead);
        is_there = weight.begin(constants, from0, feed, min_i64(kStepElements, elements - feed * kStepElements), to);
        if (is_there) {
          weight.expand(constants, 0, to);
          weight.expand(constants, 1, to);
        }
      }
      if constexpr (kPanels == 2) {
        t.template load_once<5>(x + panel_bytes, 64);
        t.template dot_bf16<2, 5, 6>();
      }
      if (is_there) {
        weight.expand(constants, 2, to);
        weight.expand(constants, 3, to);
      }
      is_there = false;
      t.template load<7>(w + kTileBytes, 64);
      t.template dot_bf16<1, 4, 7>();
      if constexpr (kRowPanels == 2) {
        ask_step(from1 + ahead);
        is_there = weight.begin(constants, from1, feed, min_i64(kStepElements, elements - feed * kStepElements),
                                to + kTileBytes);
        if (is_there) {
          weight.expand(constants, 0, to + kTileBytes);
          weight.expand(constants, 1, to + kTileBytes);
        }
      }
      if constexpr (kPanels == 2) t.template dot_bf16<3, 5, 7>();
      if (is_there) {
        weight.expand(constants, 2, to + kTileBytes);
        weight.expand(constants, 3, to + kTileBytes);
      }
    }
    slot_ += count;
    if constexpr (kRowPanels == 0) return;
    feed_.slot += count;
    feed_.step = feed;
    if (feed == steps_) next_pair();
  }

  template <int kPanels>
  void run_row_panels() {
    const Constants constants;
    for (int64_t i = 0; i < kAheadSteps; ++i) {
      Tile tile;
      begin(constants, static_cast<int>(feed_.which), ring(feed_.slot, 0), tile);
      for (int part = 0; part < kTileParts; ++part) tile.expand(constants, part);
      advance_row_panel();
    }
    for (int64_t n = a_.n_begin; n < a_.n_end; n += end_.columns()) {
      for (int which = 0; which < (is_alone(n) ? 1 : 2); ++which) multiply_row_panel<kPanels>(which, constants);
      for (int64_t row = 0; row < a_.rows; row += TilesEnd::kPanels * kXTileRows)
        end_.block(row, row, n, scratch_.sums + row / kXTileRows * TilesEnd::kPanelFloats);
    }
    end_.finish();
  }
  REDLINE_INLINE void advance_row_panel() {
    if (is_done()) return;
    ++feed_.slot;
    if (++feed_.step < steps_) return;
    feed_.step = 0;
    feed_.which = is_alone(feed_.n) ? 0 : 1 - feed_.which;
    if (feed_.which == 0) next_pair();
  }

  template <int kPanels>
  [[gnu::noinline]] void multiply_row_panel(int which, const Constants& all_constants) {
    Unit& t = unit_;
    t.template zero<0>();
    t.template zero<1>();
    t.template zero<2>();
    t.template zero<3>();
    const Constants constants = all_constants;
    const auto* x = static_cast<const uint8_t*>(a_.x);
    for (int64_t step = 0; step < steps_; ++step, x += kTileBytes, ++slot_) {
      Tile tile;
      t.template load<6>(ring(slot_, 0), 64);
      t.template load_once<4>(x, 64);
      t.template dot_bf16<0, 4, 6>();
      begin(constants, static_cast<int>(feed_.which), ring(feed_.slot, 0), tile);
      tile.expand(constants, 0);
      t.template load_once<5>(x + panel_bytes_, 64);
      t.template dot_bf16<1, 5, 6>();
      tile.expand(constants, 1);
      t.template load_once<4>(x + 2 * panel_bytes_, 64);
      t.template dot_bf16<2, 4, 6>();
      tile.expand(constants, 2);
      if constexpr (kPanels == 4) {
        t.template load_once<5>(x + 3 * panel_bytes_, 64);
        t.template dot_bf16<3, 5, 6>();
      }
      tile.expand(constants, 3);
      advance_row_panel();
    }
    float* sums = scratch_.sums + which * TilesEnd::kTileFloats;
    t.template store<0>(sums, 64);
    t.template store<1>(sums + TilesEnd::kPanelFloats, 64);
    t.template store<2>(sums + 2 * TilesEnd::kPanelFloats, 64);
    if constexpr (kPanels == 4) t.template store<3>(sums + 3 * TilesEnd::kPanelFloats, 64);
  }

  const LinearArgs& a_;
  TilesScratch& scratch_;
  const int64_t panel_bytes_, row_panel_bytes_, steps_;
  const TilesEnd end_;
  Feed feed_ = {};
  int64_t slot_ = 0;
  int64_t due_n_ = -1;
  Unit unit_;
};

}  // namespace
}  // namespace redline::REDLINE_ISA_NS
