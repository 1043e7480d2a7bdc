// The forms in which linear kernels take their activations x [rows, cols]. A form is made once and read by every
// product of the same x; the rounding, where there is one, happens there.
#pragma once

#include <cstdint>

namespace redline {

enum class XForm : uint8_t {
  kF32,    ///< rows of float32, any stride
  kQ8,     ///< int8 codes in groups of 32 with a scale each: operands of integer dot products
  kTiles,  ///< bfloat16 in the order of tile products
  kI8,     ///< int8 in the order of tile products, a scale for every 1024 of a row
};
inline constexpr int kNumXForms = 4;

/// kQ8. Elements that share a scale: scale = max |x| / 127, code = round(x / scale). cols is a multiple of it.
inline constexpr int64_t kQ8Group = 32;
/// Codes are summed in the smallest group that a weight has a minimum for.
inline constexpr int64_t kQ8SumGroup = 16;
/// A row of kQ8: [cols] int8 codes, [cols / 32] float32 scales, [cols / 16] int32 sums of codes, padded to a line.
constexpr int64_t q8_scales_at(int64_t cols) { return cols; }
constexpr int64_t q8_sums_at(int64_t cols) { return cols + cols / kQ8Group * 4; }
constexpr int64_t q8_row_bytes(int64_t cols) {
  return (cols + cols / kQ8Group * 4 + cols / kQ8SumGroup * 4 + 63) / 64 * 64;
}

/// kTiles: [rows / 16][cols / 32][16 rows][32 columns] bfloat16, one tile of 1 KiB after the other along K; rows and
/// columns are padded to whole tiles, columns with zeros (rows past the last hold anything: they meet no other row).
inline constexpr int64_t kXTileRows = 16;
inline constexpr int64_t kXTileBytes = 64;  ///< of K
constexpr int64_t tiles_panel_bytes(int64_t cols) { return (cols + 31) / 32 * kXTileRows * kXTileBytes; }

/// kI8: a panel of 16 rows is [cols / 64][16 rows][64 columns] int8, columns padded with zeros, then for each kI8Chunk
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

/// Rows that lie together in a form: where an item of a batch may begin.
constexpr int64_t x_form_panel(XForm form) { return form == XForm::kTiles || form == XForm::kI8 ? kXTileRows : 1; }
/// Columns at whose multiples a row may be cut, to be rounded by several tasks.
constexpr int64_t x_form_grain(XForm form) { return form == XForm::kI8 ? kI8Chunk : 32; }

/// Memory of x in a form; float32 rows are taken as dense.
constexpr int64_t x_form_bytes(XForm form, int64_t rows, int64_t cols) {
  switch (form) {
    case XForm::kQ8: return rows * q8_row_bytes(cols);
    case XForm::kTiles: return (rows + kXTileRows - 1) / kXTileRows * tiles_panel_bytes(cols);
    case XForm::kI8: return (rows + kXTileRows - 1) / kXTileRows * i8_panel_bytes(cols);
    case XForm::kF32: break;
  }
  return rows * cols * 4;
}

}  // namespace redline
