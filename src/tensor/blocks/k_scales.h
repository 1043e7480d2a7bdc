// The head of Q4_K and Q5_K: f16 d, f16 dmin, then 8 scales and 8 mins of 6 bits in 12 bytes. Scales 0-3 are the low
// six bits of bytes 0-3, mins 0-3 those of bytes 4-7; scales and mins 4-7 are the low and high nibbles of bytes 8-11
// under the two high bits of bytes 0-3 and 4-7.
#pragma once

#include "tensor/blocks/block.h"

namespace redline::blocks {

REDLINE_BLOCK_INLINE void unpack_k_scales(const uint8_t* block, float* scales, float* mins) {
  const float d = load_half(block), dmin = load_half(block + 2);
  const uint8_t* packed = block + 4;
  for (int g = 0; g < 4; ++g) {
    scales[g] = d * static_cast<float>(packed[g] & 63);
    mins[g] = dmin * static_cast<float>(packed[g + 4] & 63);
    scales[g + 4] = d * static_cast<float>((packed[g + 8] & 15) | (packed[g] >> 6) << 4);
    mins[g + 4] = dmin * static_cast<float>((packed[g + 8] >> 4) | (packed[g + 4] >> 6) << 4);
  }
}

}  // namespace redline::blocks
