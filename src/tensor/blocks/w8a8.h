// W8A8: int8 weights with one float32 scale per output row, for products with activations rounded to int8 as well
// (tensor/activation_layout.h kI8Tiled). value = scale * code. Not a file format of its own: float matrices are
// quantized to it, and compressed-tensors checkpoints are read as it (models/checkpoint/int_quantized.cc).
//
//   a stored row         [K] int8 codes, then the scale
//   a packed row panel   ceil(K / 64) tiles of 1 KiB: [16 groups of 4 elements of K][16 rows][4], zeros past K; then
//                        16 scales. The same layout serves tile products and 4-byte dot products
//
// K is a multiple of 32, so that a few rows of x can be rounded in groups of 256 (kI8Grouped).
#pragma once

#include "tensor/blocks/block.h"
#include "tensor/row_panel.h"

namespace redline::blocks {

struct W8A8 {
  static constexpr DType kDType = DType::kW8A8;
  static constexpr char kName[] = "w8a8";
  static constexpr int kElements = 32, kBytes = 32, kRowBytes = 4;
  static constexpr int64_t kTileElements = 64, kTileBytes = 1024;

  REDLINE_BLOCK_INLINE constexpr int64_t codes_bytes(int64_t in_features) {
    return (in_features + kTileElements - 1) / kTileElements * kTileBytes;
  }
  REDLINE_BLOCK_INLINE constexpr int64_t panel_bytes(int64_t in_features) {
    return codes_bytes(in_features) + kRowPanelRows * kRowBytes;
  }

  REDLINE_BLOCK_INLINE void unpack_row(const uint8_t* row, float* values, int64_t count) {
    float scale;
    __builtin_memcpy(&scale, row + count, sizeof(scale));
    for (int64_t i = 0; i < count; ++i) values[i] = scale * static_cast<float>(static_cast<int8_t>(row[i]));
  }

  REDLINE_BLOCK_INLINE void round_row(const float* values, int64_t count, uint8_t* row) {
    float most = 0;
    bool finite = true;
    for (int64_t i = 0; i < count; ++i) {
      const float size = __builtin_fabsf(values[i]);
      if (most < size) most = size;
      finite &= __builtin_isfinite(values[i]) != 0;
    }
    // A row with values that are not finite gets a NaN scale; a row whose scale has no finite reciprocal becomes zeros.
    const float scale = finite ? most / 127 : __builtin_nanf("");
    const float inverse = scale > 0 && __builtin_isfinite(1 / scale) ? 1 / scale : 0;
    for (int64_t i = 0; i < count; ++i) row[i] = finite ? round_code(values[i] * inverse) : 0;
    __builtin_memcpy(row + count, &scale, sizeof(scale));
  }

  /// Packs a row panel. rows[r]: the stored row; nullptr past the last row, packed as zeros.
  REDLINE_BLOCK_INLINE void pack_panel(const uint8_t* const* rows, int64_t in_features, uint8_t* panel) {
    __builtin_memset(panel, 0, static_cast<size_t>(panel_bytes(in_features)));
    for (int64_t r = 0; r < kRowPanelRows; ++r) {
      if (!rows[r]) continue;
      uint8_t* to = panel + r * 4;
      for (int64_t k = 0; k < in_features; k += 4, to += kRowPanelRows * 4) __builtin_memcpy(to, rows[r] + k, 4);
      __builtin_memcpy(panel + codes_bytes(in_features) + r * kRowBytes, rows[r] + in_features, kRowBytes);
    }
  }
};

}  // namespace redline::blocks
