// Q3_K: 256 elements, 3 bits. 32 bytes of high bits (element e: byte e % 32, bit e / 32); 64 bytes of low bits as Q2_K;
// 16 scales of 6 bits in 12 bytes (four low bits: byte g % 8, nibble g / 8; two high bits: byte 8 + g % 4, bits
// 2 (g / 4)); f16 d. value = (d (scale - 32)) q, q = low bits - (high bit ? 0 : 4).
#pragma once

#include "tensor/blocks/block.h"

namespace redline::blocks {

struct Q3_K {
  static constexpr DType kDType = DType::kQ3_K;
  static constexpr char kName[] = "q3_k";
  static constexpr int kGgufType = 11, kElements = 256, kBytes = 110, kGroup = 16, kMaxCode = 4;
  static constexpr bool kHasMins = false;

  REDLINE_BLOCK_INLINE void unpack_i8(const uint8_t* __restrict block, int8_t* __restrict codes,
                                      float* __restrict scales, float* __restrict mins) {
    const float d = load_half(block + 108);
    const uint8_t* packed = block + 96;
    for (int g = 0; g < 16; ++g) {
      const int low = (packed[g % 8] >> (4 * (g / 8))) & 15;
      const int high = (packed[8 + g % 4] >> (2 * (g / 4))) & 3;
      scales[g] = d * static_cast<float>((low | high << 4) - 32);
    }
    for (int half = 0; half < 2; ++half)
      for (int quarter = 0; quarter < 4; ++quarter)
        for (int i = 0; i < 32; ++i) {
          const int low = (block[32 + 32 * half + i] >> (2 * quarter)) & 3;
          const int high = (block[i] >> (4 * half + quarter)) & 1;
          codes[128 * half + 32 * quarter + i] = static_cast<int8_t>(low + 4 * high - 4);
        }
  }
};

}  // namespace redline::blocks
