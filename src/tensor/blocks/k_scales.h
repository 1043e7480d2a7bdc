// The head of Q4_K and Q5_K: f16 d, f16 dmin, then 8 scales and 8 mins of 6 bits in 12 bytes. Scales 0-3 are the low
// six bits of bytes 0-3, mins 0-3 those of bytes 4-7; scales and mins 4-7 are the low and high nibbles of bytes 8-11
// under the two high bits of bytes 0-3 and 4-7.
#pragma once

#include "tensor/blocks/block.h"

namespace redline::blocks {

REDLINE_BLOCK_INLINE uint8_t k_sub_scale(const uint8_t* block, int g) {
  const uint8_t* packed = block + 4;
  return static_cast<uint8_t>(g < 4 ? packed[g] & 63 : (packed[g + 4] & 15) | (packed[g - 4] >> 6) << 4);
}
REDLINE_BLOCK_INLINE uint8_t k_sub_min(const uint8_t* block, int g) {
  const uint8_t* packed = block + 4;
  return static_cast<uint8_t>(g < 4 ? packed[g + 4] & 63 : (packed[g + 4] >> 4) | (packed[g] >> 6) << 4);
}

REDLINE_BLOCK_INLINE void unpack_k_scales(const uint8_t* block, float* scales, float* mins) {
  const float d = load_half(block), dmin = load_half(block + 2);
  for (int g = 0; g < 8; ++g) {
    scales[g] = d * static_cast<float>(k_sub_scale(block, g));
    mins[g] = dmin * static_cast<float>(k_sub_min(block, g));
  }
}

}  // namespace redline::blocks
