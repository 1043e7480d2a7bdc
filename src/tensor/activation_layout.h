// Memory layouts of the activations x [rows, cols] that linear kernels read. An activation is converted once, where it
// is also rounded to int8 or bfloat16, and shared by all products that read it.
#pragma once

#include <cstdint>

namespace redline {

enum class ActivationLayout : uint8_t {
  kF32,        ///< row-major float32, any stride
  kI8Grouped,  ///< int8 codes in groups of 256 with one scale each, for integer dot products
  kBf16Tiled,  ///< bfloat16 in tile order
  kI8Tiled,    ///< int8 in tile order, one scale per 1024 elements of a row
  /// int8 in tile order, one scale per 128 elements of a row, finer steps for groups with few large elements
  kI8TiledGroups,
};
inline constexpr int kNumActivationLayouts = 5;

/// Selects the weight types that use one kernel for any number of rows, so that the bits of a row do not depend on
/// other rows.
enum class BatchInvariance : uint8_t {
  kNone,       ///< no type: the fastest kernel for each number of rows
  kWhereFree,  ///< the types for which it costs no speed
  kAlways,
};

/// Constants of kI8Grouped. A group of kQ8Group elements shares a scale; the last group of a row may have fewer
/// elements. The scale is max |x| / 127 / 2^3. Each step of kQ8Step elements uses it times a power of two from 1 to
/// 2^3, the smallest that keeps the step's codes, round(x / scale), within 127. A few large elements then do not reduce
/// the precision of the others. cols must be a multiple of kQ8Step.
inline constexpr int64_t kQ8Group = 256, kQ8Step = 32;
inline constexpr int kQ8MaxShift = 3;
/// Scale, shifts and sums of a group, in one cache line. The sums are for weight formats with a minimum for each 16 or
/// 32 elements.
struct alignas(64) Q8Numbers {
  float scale;
  uint8_t shifts[kQ8Group / kQ8Step];  ///< each 32 elements have the scale times 2^shift
  int32_t packed_shifts;               ///< `shifts` with two bits each
  int16_t sums32[kQ8Group / 32];       ///< sums of the codes of each 32 elements, shifted; zero past the end of the row
  int16_t sums16[kQ8Group / 16];
};
static_assert(sizeof(Q8Numbers) == 64);
/// Sizes of a row of kI8Grouped: [cols] int8 codes, padded to 64 bytes, then a Q8Numbers for each group.
constexpr int64_t q8_groups(int64_t cols) { return (cols + kQ8Group - 1) / kQ8Group; }
constexpr int64_t q8_numbers_at(int64_t cols) { return (cols + 63) / 64 * 64; }
constexpr int64_t q8_row_bytes(int64_t cols) {
  return q8_numbers_at(cols) + q8_groups(cols) * static_cast<int64_t>(sizeof(Q8Numbers));
}

/// Constants of kBf16Tiled: [rows / 16][cols / 32][16 rows][32 columns] bfloat16, that is 1 KiB tiles, contiguous along
/// K. Rows and columns are padded to whole tiles, columns with zeros; padding rows are undefined (they never mix with
/// other rows).
inline constexpr int64_t kXTileRows = 16;
inline constexpr int64_t kXTileBytes = 64;  ///< bytes of K per row of a tile
constexpr int64_t tiles_panel_bytes(int64_t cols) { return (cols + 31) / 32 * kXTileRows * kXTileBytes; }

/// Constants of kI8Tiled. A panel of 16 rows is [cols / 64][16 rows][64 columns] int8, columns padded with zeros. Then
/// follow, for each kI8Chunk columns, 16 float32 scales and 16 int32 sums of codes. scale = max |x| / 127, code =
/// round(x / scale). Sums of a chunk's codes stay below 2^24, so they are exact in float32 too.
inline constexpr int64_t kI8Chunk = 1024, kI8TileColumns = 64;
constexpr int64_t i8_scales_at(int64_t cols) {
  return (cols + kI8TileColumns - 1) / kI8TileColumns * kXTileRows * kXTileBytes;
}
inline constexpr int64_t kI8ChunkScaleBytes = 2 * 64;  ///< bytes of the scales and sums of a chunk
/// `group`: columns that share a scale.
constexpr int64_t i8_panel_bytes(int64_t cols, int64_t group = kI8Chunk) {
  return i8_scales_at(cols) + (cols + group - 1) / group * kI8ChunkScaleBytes;
}
/// Constants of kI8TiledGroups. The layout is that of kI8Tiled, with a scale for each group of kI8Group columns and a
/// start value in place of the sum of codes. The start is the sum of codes times -128. An accumulator of products
/// begins with it, because the products use the weights as code + 128.
///
/// A group has finer steps if in some kQ8Step of its columns the largest |x| is not zero and at most a quarter of the
/// group's largest. In such a group each kQ8Step columns use the scale divided by 2^shift, with the largest shift up to
/// kQ8MaxShift at which their codes fit (0 if all of them are zero). The start is then in units of 2^-kI8ShiftUnit, and
/// its last 8 bits are the shifts: two bits for each kQ8Step columns, the upper bit first. The last 7 bits (kI8IsFine)
/// are not all zero in a group with finer steps, and all zero in other groups.
inline constexpr int64_t kI8Group = 128;
inline constexpr int kI8ShiftUnit = kQ8MaxShift + 1;
inline constexpr int32_t kI8ShiftBits = 255, kI8IsFine = 127;
/// Returns the shift of the step-th kQ8Step columns of a group.
constexpr int i8_shift(int32_t start, int64_t step) {
  const int32_t bits = start >> (2 * step);
  return (start & kI8IsFine) == 0 ? 0 : (bits >> 1 & 1) | (bits & 1) << 1;
}

/// Returns the number of rows that a layout interleaves; a batch item must start at a multiple of it.
constexpr int64_t activation_layout_panel(ActivationLayout layout) {
  return layout == ActivationLayout::kF32 || layout == ActivationLayout::kI8Grouped ? 1 : kXTileRows;
}
/// Returns the column granularity at which the conversion of a row can be split among tasks.
constexpr int64_t activation_layout_grain(ActivationLayout layout) {
  switch (layout) {
    case ActivationLayout::kI8Grouped: return kQ8Group;
    case ActivationLayout::kI8Tiled: return kI8Chunk;
    case ActivationLayout::kI8TiledGroups: return kI8Group;
    case ActivationLayout::kF32:
    case ActivationLayout::kBf16Tiled: break;
  }
  return 32;
}

/// Returns the bytes of x in a layout; float32 rows are dense.
constexpr int64_t activation_layout_bytes(ActivationLayout layout, int64_t rows, int64_t cols) {
  switch (layout) {
    case ActivationLayout::kI8Grouped: return rows * q8_row_bytes(cols);
    case ActivationLayout::kBf16Tiled: return (rows + kXTileRows - 1) / kXTileRows * tiles_panel_bytes(cols);
    case ActivationLayout::kI8Tiled: return (rows + kXTileRows - 1) / kXTileRows * i8_panel_bytes(cols);
    case ActivationLayout::kI8TiledGroups: return (rows + kXTileRows - 1) / kXTileRows * i8_panel_bytes(cols, kI8Group);
    case ActivationLayout::kF32: break;
  }
  return rows * cols * 4;
}

/// Returns "f32", "q8", "tiles" or "i8".
const char* activation_layout_name(ActivationLayout layout);

/// The layout of an activation by number of rows: at[i] applies from at[i].min_rows up to at[i + 1].min_rows.
/// at[0].min_rows is 0.
struct ActivationLayouts {
  static constexpr int kMax = 3;
  struct {
    int64_t min_rows = 0;
    ActivationLayout layout = ActivationLayout::kF32;
  } at[kMax];
  int count = 1;

  /// Returns the index into `at` for this number of rows.
  int index_for_rows(int64_t rows) const;
  ActivationLayout for_rows(int64_t rows) const { return at[index_for_rows(rows)].layout; }
  bool only_f32() const { return count == 1 && at[0].layout == ActivationLayout::kF32; }
  /// Returns the column granularity at which tasks can split a row in any of these layouts.
  int64_t grain() const;
  /// Returns the bytes of the largest of these layouts for up to `rows` rows.
  int64_t bytes(int64_t rows, int64_t cols) const;
  bool operator==(const ActivationLayouts& other) const;
};

}  // namespace redline
