// Q5_K: 256 elements, 5 bits. As Q4_K, with 32 bytes of fifth bits before the nibbles: element e at
// byte e % 32, bit e / 32.
#pragma once

#include "tensor/blocks/block.h"
#include "tensor/blocks/k_scales.h"

namespace redline::blocks {

struct Q5_K {
  static constexpr DType kDType = DType::kQ5_K;
  static constexpr char kName[] = "q5_k";
  static constexpr int kGgufType = 13, kElements = 256, kBytes = 176, kGroup = 32, kMaxCode = 31;
  static constexpr bool kHasMins = true;

  REDLINE_BLOCK_INLINE void unpack_i8(const uint8_t* __restrict block, int8_t* __restrict codes,
                                      float* __restrict scales, float* __restrict mins) {
    unpack_k_scales(block, scales, mins);
    for (int pair = 0; pair < 4; ++pair)
      for (int i = 0; i < 32; ++i) {
        const int high = block[16 + i] >> (2 * pair), nibbles = block[48 + 32 * pair + i];
        codes[64 * pair + i] = static_cast<int8_t>((nibbles & 15) | (high & 1) << 4);
        codes[64 * pair + 32 + i] = static_cast<int8_t>((nibbles >> 4) | (high & 2) << 3);
      }
  }
};

}  // namespace redline::blocks
