// y = x W^T (+ ...) with int8 tile products (tiles.h). x is kI8Tiled and W is W8A8; both are stored in tile order.
//
// Accumulation order is that of linear_i8.inc: an exact int32 sum for each chunk of kI8Chunk elements of K, converted
// to float32 and multiplied by the scale of x; the row scale of W at the end, then the epilogue of linear_tiles_end.h.
//
// A round multiplies two row panels of W by all panels of x over one chunk, in products of 2 by 2 panels whose four
// accumulators stay in tiles. The 32 KiB of W stay in L1 while x streams from L2. The int32 results of a product are
// scaled and accumulated while the next product runs: a few vector instructions after each tile product are free, while
// doing it separately takes as long as 240 elements of K. Shorter chunks would therefore be affordable, except that a
// tile store always takes 16 cycles.
#pragma once

#include "kernels/cpu/linear/linear_tiles_end.h"
#include "kernels/cpu/tiles.h"
#include "tensor/blocks/w8a8.h"

namespace redline::REDLINE_ISA_NS {
namespace {

using Weight = blocks::W8A8;

// Rows and row panels of W whose accumulators stay in L2 together with a chunk of x.
inline constexpr int64_t kI8MaxRows = 512, kI8MaxRowPanels = 64;
// Full-K rows of x up to kI8WholeBytes stay in L2. If that holds at least kI8WholeRows rows, each pair of row panels
// runs over all of K at once and only its accumulators are kept.
inline constexpr int64_t kI8WholeBytes = 1 << 20, kI8WholeRows = 192;
// Up to this many rows, each row panel runs over all of K, so that it is one sequential memory stream.
inline constexpr int64_t kI8FewRows = 64;
inline constexpr int64_t kI8PanelPairs = kI8MaxRows / (2 * kXTileRows);
inline constexpr int64_t kI8SumsFloats = TilesEnd::kSumsFloats;
inline constexpr int64_t kI8TileBytes = kXTileRows * kXTileBytes;

struct I8Scratch {
  alignas(
      64) float sums[kI8MaxRowPanels / 2 * kI8PanelPairs * kI8SumsFloats];  // [pairs of W panels][pairs of x panels]
  alignas(64) int32_t products[2][kI8SumsFloats];                           // current and previous product
  alignas(64) float done[kI8SumsFloats];
  alignas(64) float firsts[kI8MaxRows * kRowPanelRows];  // memory for TilesEnd
};

template <class Unit>
class LinearI8Tiles {
 public:
  explicit LinearI8Tiles(const LinearArgs& args)
      : a_(args), scratch_(*static_cast<I8Scratch*>(args.scratch)), panel_bytes_(i8_panel_bytes(args.in_features)),
        scales_at_(i8_scales_at(args.in_features)), codes_bytes_(Weight::codes_bytes(args.in_features)),
        row_panel_bytes_(Weight::panel_bytes(args.in_features)), max_rows_(rows_at_once(args.in_features)),
        max_row_panels_(args.rows <= kI8FewRows || max_rows_ * args.in_features <= kI8WholeBytes ? 2 : kI8MaxRowPanels),
        end_(args, scratch_.firsts) {}

  void run() {
    if (a_.rows == 0 || a_.n_begin >= a_.n_end) return;
    const int64_t chunks = (a_.in_features + kI8Chunk - 1) / kI8Chunk;
    if (chunks == 0) return run_nothing();
    for (int64_t row = 0; row < a_.rows; row += max_rows_) {
      const int64_t panels = (min_i64(max_rows_, a_.rows - row) + kXTileRows - 1) / kXTileRows;
      for (int64_t n = a_.n_begin; n < a_.n_end; n += max_row_panels_ / 2 * end_.columns()) {
        const int64_t n_end = min_i64(a_.n_end, n + max_row_panels_ / 2 * end_.columns());
        for (int64_t chunk = 0; chunk < chunks; ++chunk) {
          float* sums = scratch_.sums;
          for (int64_t column = n; column < n_end; column += end_.columns())
            sums = multiply_round(row, panels, column, n_end, chunk, chunk + 1 == chunks, sums);
        }
      }
    }
    finish_fold();
    end_.finish();
  }

 private:
  static int64_t rows_at_once(int64_t in_features) {
    const int64_t whole = kI8WholeBytes / max_i64(in_features, 1) / (2 * kXTileRows) * (2 * kXTileRows);
    return whole < kI8WholeRows ? kI8MaxRows : min_i64(whole, kI8MaxRows);
  }
  /// A product whose int32 sums are to be scaled and accumulated: `lines` vectors of 16.
  struct Fold {
    int64_t line = 0, lines = 0;
    const int32_t* products;
    const float* x_scales[2];  // scales of its x panels
    const float* w_scales[2];  // scales of its W panels at the end of K, else nullptr
    const float* sums_in;      // nullptr: the first chunk
    float* sums_out;
    int64_t row, row_in_range, n;

    REDLINE_INLINE void next() {
      const int64_t panel = line / (2 * kXTileRows), row_panel = line / kXTileRows % 2, row = line % kXTileRows;
      const VecF32 x_scale = set1(x_scales[panel][row]);
#pragma GCC unroll 4
      for (int i = 0; i < kRowPanelVecs; ++i) {
        const int64_t at = line * kRowPanelRows + i * kWidth;
        VecF32 sum = sums_in ? load(sums_in + at, Full{}) : zero_f32();
        sum = fma(to_f32(load_i32(products + at)), x_scale, sum);
        if (w_scales[0]) sum = sum * load(w_scales[row_panel] + i * kWidth, Full{});
        store(sums_out + at, sum, Full{});
      }
      ++line;
    }
  };
  [[gnu::noinline]] void finish_fold() {
    while (fold_.line < fold_.lines) fold_.next();
    if (fold_.lines > 0 && fold_.w_scales[0]) end_.block(fold_.row, fold_.row_in_range, fold_.n, scratch_.done);
    fold_.lines = fold_.line = 0;
  }

  const uint8_t* row_panel(int64_t column, int which) const {
    const void* weight = a_.weight;
    if (end_.is_gated()) {
      if (which == 1) weight = a_.end->up_weight;
    } else {
      column += which * kRowPanelRows;
    }
    return static_cast<const uint8_t*>(weight) + column / kRowPanelRows * row_panel_bytes_;
  }

  float* multiply_round(int64_t row, int64_t panels, int64_t column, int64_t n_end, int64_t chunk, bool last,
                        float* sums) {
    const bool alone = !end_.is_gated() && column + kRowPanelRows >= a_.n_end;
    const int64_t at = chunk * (kI8Chunk / Weight::kTileElements) * Weight::kTileBytes;
    const int64_t steps =
        min_i64(codes_bytes_ - at, kI8Chunk / Weight::kTileElements * Weight::kTileBytes) / Weight::kTileBytes;
    const uint8_t* const w[2] = {row_panel(column, 0) + at,
                                 alone ? row_panel(column, 0) + at : row_panel(column, 1) + at};
    // Prefetches the row panels of the next round, a share per step.
    const uint8_t* prefetch[2] = {w[0] + steps * Weight::kTileBytes, w[1] + steps * Weight::kTileBytes};
    if (column + end_.columns() < n_end || last) {
      const int64_t next = column + end_.columns();
      const int64_t prefetch_at = next < n_end ? at : 0;
      prefetch[0] = row_panel(next, 0) + prefetch_at, prefetch[1] = row_panel(next, 1) + prefetch_at;
    }
    const int64_t pairs = (panels + 1) / 2, prefetch_lines = (kI8TileBytes / 64 + pairs - 1) / pairs;
    for (int64_t p = 0; p < panels; p += 2, sums += kI8SumsFloats) {
      const uint8_t* panel = static_cast<const uint8_t*>(a_.x) + (row / kXTileRows + p) * panel_bytes_;
      const bool one = p + 1 == panels;
      int32_t* products = scratch_.products[side_];
      const uint8_t* x = panel + at;
      if (alone)
        one ? multiply<1, 1>(x, w, steps, products, prefetch, prefetch_lines)
            : multiply<2, 1>(x, w, steps, products, prefetch, prefetch_lines);
      else
        one ? multiply<1, 2>(x, w, steps, products, prefetch, prefetch_lines)
            : multiply<2, 2>(x, w, steps, products, prefetch, prefetch_lines);
      prefetch[0] += steps * prefetch_lines * 64, prefetch[1] += steps * prefetch_lines * 64;
      finish_fold();
      const auto scales = [&](int64_t which) {
        return reinterpret_cast<const float*>(panel + which * panel_bytes_ + scales_at_ + chunk * kI8ChunkScaleBytes);
      };
      const auto w_scales = [&](int which) {
        return reinterpret_cast<const float*>(row_panel(column, alone ? 0 : which) + codes_bytes_);
      };
      fold_ = {0,
               one ? 2 * kXTileRows : 4 * kXTileRows,
               products,
               {scales(0), scales(one ? 0 : 1)},
               {nullptr, nullptr},
               chunk == 0 ? nullptr : sums,
               last ? scratch_.done : sums,
               row + p * kXTileRows,
               p * kXTileRows,
               column};
      if (last) fold_.w_scales[0] = w_scales(0), fold_.w_scales[1] = w_scales(1);
      side_ = 1 - side_;
    }
    return sums;
  }

  /// Multiplies panels. With one panel of x or of W, the accumulators of the missing one are not touched.
  template <int kPanels, int kRowPanels>
  [[gnu::noinline]] void multiply(const uint8_t* x, const uint8_t* const* w, int64_t steps, int32_t* products,
                                  const uint8_t* const* prefetch, int64_t prefetch_lines) {
    Unit& t = unit_;
    t.template zero<0>();
    t.template zero<1>();
    t.template zero<2>();
    t.template zero<3>();
    const uint8_t *w0 = w[0], *w1 = w[1], *prefetch0 = prefetch[0], *prefetch1 = prefetch[1];
    const int64_t panel_bytes = panel_bytes_;
    Fold fold = fold_;
    // finish_fold() handles the lines that remain after the last step.
    constexpr int kLinesOfProduct = 1;
    const auto some = [&]() REDLINE_LAMBDA {
      for (int i = 0; i < kLinesOfProduct; ++i)
        if (fold.line < fold.lines) fold.next();
    };
    for (int64_t step = 0; step < steps;
         ++step, x += kI8TileBytes, w0 += Weight::kTileBytes, w1 += Weight::kTileBytes) {
      t.template load<6>(w0, 64);
      t.template load_once<4>(x, 64);
      t.template dot_s8s8<0, 4, 6>();
      some();
      if constexpr (kRowPanels == 2) {
        t.template load<7>(w1, 64);
        t.template dot_s8s8<1, 4, 7>();
      }
      some();
      if constexpr (kPanels == 2) {
        t.template load_once<5>(x + panel_bytes, 64);
        t.template dot_s8s8<2, 5, 6>();
      }
      some();
      if constexpr (kPanels == 2 && kRowPanels == 2) t.template dot_s8s8<3, 5, 7>();
      some();
      for (int64_t i = prefetch_lines; i > 0; --i, prefetch0 += 64, prefetch1 += 64) {
        __builtin_prefetch(prefetch0, 0, 2);
        __builtin_prefetch(prefetch1, 0, 2);
      }
    }
    fold_ = fold;
    t.template store<0>(products, 64);
    if constexpr (kRowPanels == 2) t.template store<1>(products + 256, 64);
    if constexpr (kPanels == 2) t.template store<2>(products + 512, 64);
    if constexpr (kPanels == 2 && kRowPanels == 2) t.template store<3>(products + 768, 64);
  }

  void run_nothing() const {
    for (int64_t row = 0; row < a_.rows; row += 2 * kXTileRows)
      for (int64_t n = a_.n_begin; n < a_.n_end; n += end_.columns()) {
        __builtin_memset(scratch_.done, 0, sizeof(scratch_.done));
        end_.block(row, row % kI8MaxRows, n, scratch_.done);
      }
    end_.finish();
  }

  const LinearArgs& a_;
  I8Scratch& scratch_;
  const int64_t panel_bytes_, scales_at_, codes_bytes_, row_panel_bytes_, max_rows_, max_row_panels_;
  const TilesEnd end_;
  Fold fold_ = {};
  int side_ = 0;
  Unit unit_;
};

}  // namespace

static_assert(sizeof(I8Scratch) <= kScratchBytes);

}  // namespace redline::REDLINE_ISA_NS
