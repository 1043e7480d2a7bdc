// w8a8: int8 weights with one float32 scale for each output row, for products with activations rounded to int8 as well
// (tensor/activation_layout.h kI8Tiled). value = scale * code. No file format of ours holds it: float matrices are rounded to it,
// and checkpoints of compressed-tensors are read as it (models/int_quantized.h).
//
//   a row as it is stored   [K] int8 codes, then the scale
//   a packed strip          ceil(K / 64) tiles of 1 KiB: [16 groups of 4 elements of K][16 rows][4], zeros past K; then
//   a line
//                           of 16 scales. One layout serves tile products and dot products of 4 bytes
//
// K is a multiple of 32, so that x may be rounded in the groups of other formats for a few rows.
#pragma once

#include <cstdint>

namespace redline {

inline constexpr int32_t kW8A8Block = 32, kW8A8RowBytes = 4;
inline constexpr int64_t kW8A8TileElements = 64, kW8A8TileBytes = 1024;
[[gnu::always_inline]] inline constexpr int64_t w8a8_codes_bytes(int64_t in_features) {
  return (in_features + kW8A8TileElements - 1) / kW8A8TileElements * kW8A8TileBytes;
}
[[gnu::always_inline]] inline constexpr int64_t w8a8_strip_bytes(int64_t in_features) {
  return w8a8_codes_bytes(in_features) + 16 * 4;
}

}  // namespace redline
