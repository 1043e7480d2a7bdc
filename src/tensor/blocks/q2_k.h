// Q2_K: 256 elements, 2 bits. 16 bytes: 4-bit scale and 4-bit min of each 16 elements; 64 bytes of codes; f16 d;
// f16 dmin. Element e: byte 32 (e / 128) + e % 32, bits 2 (e % 128 / 32). value = (d scale) q - (dmin min).
#pragma once

#include "tensor/blocks/block.h"

namespace redline::blocks {

struct Q2_K {
  static constexpr DType kDType = DType::kQ2_K;
  static constexpr char kName[] = "q2_k";
  static constexpr int kGgufType = 10, kElements = 256, kBytes = 84, kGroup = 16, kMaxCode = 3;
  static constexpr bool kHasMins = true;

  REDLINE_BLOCK_INLINE void unpack_i8(const uint8_t* __restrict block, int8_t* __restrict codes,
                                      float* __restrict scales, float* __restrict mins) {
    const float d = load_half(block + 80), dmin = load_half(block + 82);
    for (int g = 0; g < 16; ++g) {
      scales[g] = d * static_cast<float>(block[g] & 15);
      mins[g] = dmin * static_cast<float>(block[g] >> 4);
    }
    for (int half = 0; half < 2; ++half)
      for (int quarter = 0; quarter < 4; ++quarter)
        for (int i = 0; i < 32; ++i)
          codes[128 * half + 32 * quarter + i] = (block[16 + 32 * half + i] >> (2 * quarter)) & 3;
  }
};

}  // namespace redline::blocks
