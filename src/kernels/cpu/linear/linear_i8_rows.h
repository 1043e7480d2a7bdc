// Products of many rows of x with weights of 8 bits: the loop that W8A8 and requantized weights share.
//
// x is in panels of 16 rows (kI8Tiled, kI8TiledGroups), whose rows differ by constant addresses. Two row panels of a
// chunk of K are loaded into L1, as unsigned codes with 128 added, and multiplied by all rows of a panel before the
// next two. The x of a chunk and the sums of all columns of a group stay in L2.
//
// A trait says what the weights are:
//     static constexpr int64_t kXGroup;      elements of K that share a scale of x, a multiple of kI8TileColumns
//     static constexpr int64_t kScaleGroup;  elements that share a scale of a weight row; 0: all, applied at the end
//     static constexpr int64_t kChunk;       elements of K loaded at a time, a multiple of both
//     static constexpr bool kIsUnsigned;     codes have 128 added, and sums begin at -128 times the sum of x codes
//     static constexpr bool kHasStarts;      x is kI8TiledGroups, which has these instead of its sums
//     const uint8_t* place(a, n, k)          address of element k in the row panel of column n
//     int64_t row_panel_bytes(a), bytes(a, k)   bytes of a row panel, and of k elements of it
//     void load(a, n, row_panels, k, count, scratch)   loads codes, and with kScaleGroup scales, of `count` elements
//     RowPanelF32 end_scale(a, n)            scales of a row panel that are applied at the end (kScaleGroup 0)
#pragma once

#include "kernels/cpu/linear/linear_finish.h"
#include "kernels/cpu/linear/linear_next_weights.h"

namespace redline::REDLINE_ISA_NS {
namespace {

// Register blocking within a panel of 16 rows of x: the maximum rows of a tile. Rows are balanced over tiles.
inline constexpr int kI8TileRows = kWidth == 16 ? 8 : kWidth == 8 ? 6 : 1;
inline constexpr int kI8TileRowPanels = kWidth == 16 ? 2 : 1;
inline constexpr int64_t kI8PanelRows = 256, kI8GroupRowPanels = 16;

template <class W>
struct I8Scratch {
  static constexpr int64_t kScales = W::kScaleGroup > 0 ? W::kChunk / W::kScaleGroup : 1;
  alignas(64) uint8_t codes[kI8TileRowPanels][W::kChunk * kRowPanelRows];
  alignas(64) float scales[kScales][kI8TileRowPanels][kRowPanelRows];
  alignas(64) float sums[kI8GroupRowPanels][kI8PanelRows * kRowPanelRows];
};

/// A tile of products: rows of x by two row panels, over a chunk of K.
template <class W>
struct I8Tile {
  const uint8_t* x;        // the first row in its panel, at the first element of the chunk
  const uint8_t* numbers;  // scale of the first row for the first elements that share one; the sum is 64 bytes further
  const I8Scratch<W>* scratch;
  float* sums;    // sums of the first row and row panel; the next panel's are kI8PanelRows further
  int64_t count;  // pieces of kI8TileColumns elements
  bool is_begin;  // K begins here: there are no sums yet
};

/// Returns the start value of a row of kI8TiledGroups.
REDLINE_INLINE int32_t start_of(const uint8_t* numbers, int row) {
  int32_t start;
  __builtin_memcpy(&start, numbers + 64 + row * 4, 4);
  return start;
}
/// Returns true if a row has finer steps. Checks two rows at a time: if it used the broadcast values, the compiler
/// would broadcast from registers, which takes the port of the products.
template <int kRows>
REDLINE_INLINE bool has_fine_steps(const uint8_t* numbers) {
  uint64_t any = 0;
  unroll<kRows / 2>([&](auto pair) REDLINE_LAMBDA {
    uint64_t both;
    __builtin_memcpy(&both, numbers + 64 + pair * 8, 8);
    any |= both;
  });
  if (kRows % 2 != 0) any |= static_cast<uint32_t>(start_of(numbers, kRows - 1));
  return (any & (uint64_t{kI8IsFine} << 32 | kI8IsFine)) != 0;
}

/// Adds products of kElements of K to dot.
template <class W, int64_t kElements, int kRows, int kCols>
REDLINE_INLINE void add_products(const uint8_t* x, const uint8_t* codes, VecI32 (&dot)[kRows][kCols]) {
  for (int64_t k = 0; k < kElements; k += 4, codes += kRowPanelRows * 4) {
    VecI32 weight[kCols];
    unroll<kCols>([&](auto c) REDLINE_LAMBDA {
      weight[c] = load_i32(codes + c / kRowPanelVecs * W::kChunk * kRowPanelRows + c % kRowPanelVecs * kWidth * 4);
    });
    unroll<kRows>([&](auto r) REDLINE_LAMBDA {
      int32_t four;
      __builtin_memcpy(&four, x + r * kXTileBytes + k, 4);
      const VecI32 all = set1_i32(four);
      unroll<kCols>([&](auto c) REDLINE_LAMBDA {
        dot[r][c] = W::kIsUnsigned ? dot4_u7s8(dot[r][c], weight[c], all) : dot4_s8s8(dot[r][c], weight[c], all);
      });
    });
  }
}

/// Computes sums of a group where some row of x has finer steps for some of its kQ8Step elements, in units of the
/// coarsest: the sums of each step are shifted before they are added. A row without finer steps gets the sums of
/// multiply_i8_tile.
template <class W, int kRows>
[[gnu::noinline]] void multiply_fine_steps(const uint8_t* x, const uint8_t* codes, const uint8_t* numbers,
                                           int64_t pieces, float* values) {
  constexpr int kCols = kI8TileRowPanels * kRowPanelVecs;
  alignas(64) int32_t sums[kRows * kCols * kWidth];  // unit: 2^-kI8ShiftUnit
  for (int r = 0; r < kRows; ++r) {
    const int32_t start = start_of(numbers, r);
    const bool is_fine = (start & kI8IsFine) != 0;
    const VecI32 first = set1_i32(is_fine ? start & ~kI8ShiftBits : start * (1 << kI8ShiftUnit));
    for (int c = 0; c < kCols; ++c) store(sums + (r * kCols + c) * kWidth, first, Full{});
  }
  for (int64_t step = 0; step < pieces * (kI8TileColumns / kQ8Step); ++step) {
    const uint8_t* from =
        x + step * kQ8Step / kI8TileColumns * kXTileRows * kXTileBytes + step * kQ8Step % kI8TileColumns;
    VecI32 dot[kRows][kCols];
    for (int r = 0; r < kRows; ++r)
      for (int c = 0; c < kCols; ++c) dot[r][c] = zero_i32();
    add_products<W, kQ8Step>(from, codes, dot);
    codes += kQ8Step * kRowPanelRows;
    for (int r = 0; r < kRows; ++r) {
      const VecI32 left = set1_i32(kI8ShiftUnit - i8_shift(start_of(numbers, r), step));
      for (int c = 0; c < kCols; ++c) {
        int32_t* const sum = sums + (r * kCols + c) * kWidth;
        store(sum, load_i32(sum) + shl(dot[r][c], left), Full{});
      }
    }
  }
  for (int i = 0; i < kRows * kCols * kWidth; i += kWidth)
    store(values + i, to_f32(load_i32(sums + i)) * set1(1.0f / (1 << kI8ShiftUnit)), Full{});
}

template <class W, int kRows>
[[gnu::noinline]] void multiply_i8_tile(const I8Tile<W>& t) {
  constexpr int kCols = kI8TileRowPanels * kRowPanelVecs;
  constexpr int64_t kGroupPieces = W::kXGroup / kI8TileColumns,
                    kScalePieces = (W::kScaleGroup > 0 ? W::kScaleGroup : W::kChunk) / kI8TileColumns;
  constexpr bool kIsOneGroup = kGroupPieces == kScalePieces;
  const auto for_all = [](const auto& body) REDLINE_LAMBDA {
    unroll<kRows>([&](auto r) REDLINE_LAMBDA { unroll<kCols>([&](auto c) REDLINE_LAMBDA { body(r, c); }); });
  };
  const auto place = [](int r, int c) REDLINE_LAMBDA {
    return (c / kRowPanelVecs * kI8PanelRows + r) * kRowPanelRows + c % kRowPanelVecs * kWidth;
  };
  // Sums of elements that share a scale of w. The 16 registers are taken by the integer sums, so these stay in L1.
  alignas(64) float parts[kRows][kCols * kWidth];
  const uint8_t *x = t.x, *numbers = t.numbers, *codes = t.scratch->codes[0];
  bool is_begin = t.is_begin;
  for (int64_t piece = 0; piece < t.count; numbers += kI8ChunkScaleBytes) {
    const int64_t scale_begin = piece / kScalePieces * kScalePieces, end = min_i64(piece + kGroupPieces, t.count);
    const bool is_first = kIsOneGroup || piece == scale_begin;
    const bool is_last = kIsOneGroup || end == t.count || end == scale_begin + kScalePieces;
    const auto x_scale = [&](int r) REDLINE_LAMBDA {
      float scale;
      __builtin_memcpy(&scale, numbers + r * 4, 4);
      return set1(scale);
    };
    const auto end_group = [&](const auto& value_of) REDLINE_LAMBDA {
      const auto part_of = [&](int r, int c) REDLINE_LAMBDA { return parts[r] + c * kWidth; };
      if (!is_last) {
        for_all([&](auto r, auto c) REDLINE_LAMBDA {
          const VecF32 before = is_first ? zero_f32() : load(part_of(r, c), Full{});
          store(part_of(r, c), fma(value_of(r, c), x_scale(r), before), Full{});
        });
        return;
      }
      for_all([&](auto r, auto c) REDLINE_LAMBDA {
        float* sum = t.sums + place(r, c);
        VecF32 value;
        if constexpr (W::kScaleGroup > 0) {
          const VecF32 before = is_first ? zero_f32() : load(part_of(r, c), Full{});
          const VecF32 scale = load(
              t.scratch->scales[scale_begin / kScalePieces][c / kRowPanelVecs] + c % kRowPanelVecs * kWidth, Full{});
          value = fma(fma(value_of(r, c), x_scale(r), before), scale, is_begin ? zero_f32() : load(sum, Full{}));
        } else {
          value = fma(value_of(r, c), x_scale(r), is_begin ? zero_f32() : load(sum, Full{}));
        }
        store(sum, value, Full{});
      });
      is_begin = false;
    };
    if constexpr (W::kHasStarts)
      if (has_fine_steps<kRows>(numbers)) [[unlikely]] {
        alignas(64) float values[kRows][kCols * kWidth];
        multiply_fine_steps<W, kRows>(x, codes, numbers, end - piece, values[0]);
        x += (end - piece) * kXTileRows * kXTileBytes;
        codes += (end - piece) * kI8TileColumns * kRowPanelRows;
        piece = end;
        end_group([&](int r, int c) REDLINE_LAMBDA { return load(values[r] + c * kWidth, Full{}); });
        continue;
      }
    VecI32 dot[kRows][kCols];
    unroll<kRows>([&](auto r) REDLINE_LAMBDA {
      int32_t sum = 0;
      if (W::kIsUnsigned) __builtin_memcpy(&sum, numbers + 64 + r * 4, 4);
      const VecI32 start = set1_i32(W::kHasStarts ? sum : -128 * sum);
      unroll<kCols>([&](auto c) REDLINE_LAMBDA { dot[r][c] = start; });
    });
    for (; piece < end; ++piece, x += kXTileRows * kXTileBytes, codes += kI8TileColumns * kRowPanelRows)
      add_products<W, kI8TileColumns>(x, codes, dot);
    end_group([&](auto r, auto c) REDLINE_LAMBDA { return to_f32(dot[r][c]); });
  }
}

template <class W, int kRows = kI8TileRows>
void multiply_i8_rows(int64_t rows, const I8Tile<W>& t) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return multiply_i8_rows<W, kRows - 1>(rows, t);
  }
  multiply_i8_tile<W, kRows>(t);
}

/// Finishes some rows and row panels, whose sums over K are rows of y.
template <class W>
void finish_i8_rows(const LinearArgs& a, const W& w, int64_t row, int64_t rows, int64_t n, int64_t row_panels,
                    const float* sums) {
  for (int64_t s = 0; s < row_panels; ++s, n += kRowPanelRows, sums += kI8PanelRows * kRowPanelRows) {
    RowPanelF32 scale;
    if constexpr (W::kScaleGroup == 0) scale = w.end_scale(a, n);
    for (int64_t r = 0; r < rows; ++r) {
      RowPanelF32 y = load_row_panel(sums + r * kRowPanelRows);
      if constexpr (W::kScaleGroup == 0)
        unroll<kRowPanelVecs>([&](auto v) REDLINE_LAMBDA { y.v[v] = y.v[v] * scale.v[v]; });
      finish_row_panel(a, row + r, n, y);
    }
  }
}

/// Multiplies all rows. K must be above 0.
template <class W>
void linear_i8_rows(const LinearArgs& a, const W& w) {
  constexpr int64_t kColumns = kI8TileRowPanels * kRowPanelRows;
  const auto panels_to = [](int64_t columns) { return (columns + kRowPanelRows - 1) / kRowPanelRows; };
  auto& scratch = *static_cast<I8Scratch<W>*>(a.scratch);
  static_assert(sizeof(scratch) <= kScratchBytes);
  const int64_t k_total = a.in_features, scales_at = i8_scales_at(k_total),
                panel_bytes = i8_panel_bytes(k_total, W::kXGroup);
  for (int64_t panel = 0; panel < a.rows; panel += kI8PanelRows) {
    const int64_t rows = min_i64(kI8PanelRows, a.rows - panel);
    for (int64_t group = a.n_begin; group < a.n_end; group += kI8GroupRowPanels * kRowPanelRows) {
      const int64_t end = min_i64(group + kI8GroupRowPanels * kRowPanelRows, a.n_end);
      for (int64_t k = 0; k < k_total; k += W::kChunk) {
        const int64_t count = min_i64(W::kChunk, k_total - k);
        const bool is_end = k + count == k_total;
        I8Tile<W> t;
        t.scratch = &scratch;
        t.count = (count + kI8TileColumns - 1) / kI8TileColumns;
        t.is_begin = k == 0;
        // An odd last row panel is paired with one whose results are dropped.
        for (int64_t n = group; n < end; n += kColumns) {
          const int64_t row_panels = min_i64(kI8TileRowPanels, panels_to(end - n));
          w.load(a, n, row_panels, k, count, scratch);
          const ChunkPlace then = chunk_after({n, k}, kColumns, group, end, W::kChunk, k_total);
          NextWeights next(w.place(a, then.n, then.k), w.row_panel_bytes(a),
                           min_i64(kI8TileRowPanels, panels_to(a.n_end - then.n)),
                           then.n >= a.n_end ? 0 : w.bytes(a, min_i64(W::kChunk, k_total - then.k)),
                           (rows + kI8TileRows - 1) / kI8TileRows);
          float* const sums = scratch.sums[(n - group) / kRowPanelRows];
          for (int64_t row = 0; row < rows;) {
            const int64_t in_panel = row % kXTileRows, left = min_i64(kXTileRows - in_panel, rows - row),
                          tiles = (left + kI8TileRows - 1) / kI8TileRows, here = (left + tiles - 1) / tiles;
            const uint8_t* x = static_cast<const uint8_t*>(a.x) + (panel + row) / kXTileRows * panel_bytes;
            t.x = x + k * kXTileRows + in_panel * kXTileBytes;
            t.numbers = x + scales_at + k / W::kXGroup * kI8ChunkScaleBytes + in_panel * 4;
            t.sums = sums + row * kRowPanelRows;
            next.prefetch();
            if (is_end) prefetch_finish(a, panel + row, here, n, row_panels);
            multiply_i8_rows<W>(here, t);
            if (is_end) finish_i8_rows(a, w, panel + row, here, n, row_panels, t.sums);
            row += here;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace redline::REDLINE_ISA_NS
