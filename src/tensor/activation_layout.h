// Memory layouts in which linear kernels take their activations x [rows, cols]. An activation is written in its layout once
// and read by every product of it; rounding to int8 or bfloat16 happens there.
#pragma once

#include <cstdint>

namespace redline {

enum class ActivationLayout : uint8_t {
  kF32,        ///< rows of float32, any stride
  kI8Grouped,  ///< int8 codes in groups of 32 with a scale each: operands of integer dot products
  kBf16Tiled,  ///< bfloat16 in the order of tile products
  kI8Tiled,    ///< int8 in the order of tile products, a scale for every 1024 of a row
};
inline constexpr int kNumActivationLayouts = 4;

/// kI8Grouped. Elements that share a scale: scale = max |x| / 127, code = round(x / scale). cols is a multiple of it.
inline constexpr int64_t kQ8Group = 32;
/// Codes are summed in the smallest group that a weight has a minimum for.
inline constexpr int64_t kQ8SumGroup = 16;
/// A row of kI8Grouped: [cols] int8 codes, [cols / 32] float32 scales, [cols / 16] int32 sums of codes, padded to a line.
constexpr int64_t q8_scales_at(int64_t cols) { return cols; }
constexpr int64_t q8_sums_at(int64_t cols) { return cols + cols / kQ8Group * 4; }
constexpr int64_t q8_row_bytes(int64_t cols) {
  return (cols + cols / kQ8Group * 4 + cols / kQ8SumGroup * 4 + 63) / 64 * 64;
}

/// kBf16Tiled: [rows / 16][cols / 32][16 rows][32 columns] bfloat16, one tile of 1 KiB after the other along K; rows and
/// columns are padded to whole tiles, columns with zeros (rows past the last hold anything: they meet no other row).
inline constexpr int64_t kXTileRows = 16;
inline constexpr int64_t kXTileBytes = 64;  ///< of K
constexpr int64_t tiles_panel_bytes(int64_t cols) { return (cols + 31) / 32 * kXTileRows * kXTileBytes; }

/// kI8Tiled: a panel of 16 rows is [cols / 64][16 rows][64 columns] int8, columns padded with zeros, then for each kI8Chunk
/// columns a line of 16 float32 scales and a line of 16 int32 sums of codes. scale = max |x| / 127, code = round(x /
/// scale). Products of a chunk stay below 2^24: their sums are exact in float32 too.
inline constexpr int64_t kI8Chunk = 1024, kI8TileColumns = 64;
constexpr int64_t i8_scales_at(int64_t cols) {
  return (cols + kI8TileColumns - 1) / kI8TileColumns * kXTileRows * kXTileBytes;
}
inline constexpr int64_t kI8ChunkLines = 2 * 64;  ///< scales and sums of a chunk
constexpr int64_t i8_panel_bytes(int64_t cols) {
  return i8_scales_at(cols) + (cols + kI8Chunk - 1) / kI8Chunk * kI8ChunkLines;
}

/// Rows that are interleaved in a layout: a batch item may begin at multiples of it.
constexpr int64_t activation_layout_panel(ActivationLayout layout) {
  return layout == ActivationLayout::kBf16Tiled || layout == ActivationLayout::kI8Tiled ? kXTileRows : 1;
}
/// Columns at whose multiples a row may be cut, to be rounded by several tasks.
constexpr int64_t activation_layout_grain(ActivationLayout layout) {
  return layout == ActivationLayout::kI8Tiled ? kI8Chunk : 32;
}

/// Bytes of x in a layout; float32 rows are taken as dense.
constexpr int64_t activation_layout_bytes(ActivationLayout layout, int64_t rows, int64_t cols) {
  switch (layout) {
    case ActivationLayout::kI8Grouped: return rows * q8_row_bytes(cols);
    case ActivationLayout::kBf16Tiled: return (rows + kXTileRows - 1) / kXTileRows * tiles_panel_bytes(cols);
    case ActivationLayout::kI8Tiled: return (rows + kXTileRows - 1) / kXTileRows * i8_panel_bytes(cols);
    case ActivationLayout::kF32: break;
  }
  return rows * cols * 4;
}

#ifndef REDLINE_ISA_NS  // kernel sources see one layout at a time

/// "f32", "q8", "tiles", "i8".
const char* activation_layout_name(ActivationLayout layout);

/// The layout of one activation by number of rows: layout i applies from at[i].min_rows up to at[i + 1].min_rows.
/// at[0].min_rows is 0.
struct ActivationLayouts {
  static constexpr int kMax = 3;
  struct {
    int64_t min_rows = 0;
    ActivationLayout layout = ActivationLayout::kF32;
  } at[kMax];
  int count = 1;

  /// Which of `at` serves so many rows.
  int index_for_rows(int64_t rows) const;
  ActivationLayout for_rows(int64_t rows) const { return at[index_for_rows(rows)].layout; }
  bool only_f32() const { return count == 1 && at[0].layout == ActivationLayout::kF32; }
  /// Columns at whose multiples tasks may cut a row in any of these layouts.
  int64_t grain() const;
  /// Bytes of the largest layout at up to `rows` rows.
  int64_t bytes(int64_t rows, int64_t cols) const;
  bool operator==(const ActivationLayouts& other) const;
};

#endif  // REDLINE_ISA_NS

}  // namespace redline
