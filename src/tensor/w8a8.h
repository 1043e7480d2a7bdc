// w8a8: int8 weights with one float32 scale per output row, for products with activations rounded to int8 as well
// (tensor/activation_layout.h kI8Tiled). value = scale * code. Not a file format of its own: float matrices are
// quantized to it, and compressed-tensors checkpoints are read as it (models/int_quantized.h).
//
//   a stored row         [K] int8 codes, then the scale
//   a packed row panel   ceil(K / 64) tiles of 1 KiB: [16 groups of 4 elements of K][16 rows][4], zeros past K; then
//                        16 scales. The same layout serves tile products and 4-byte dot products
//
// K is a multiple of 32, so that a few rows of x can be rounded in groups of 32 (kI8Grouped).
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
