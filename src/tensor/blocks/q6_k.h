// Q6_K: 256 elements, 6 bits. 128 bytes of low nibbles (element e: byte 64 (e / 128) + e % 64, nibble e % 128 / 64), 64
// bytes of high bits as Q2_K, 16 int8 scales, f16 d. value = (d scale) (q - 32).
#pragma once

#include "tensor/blocks/block.h"

namespace redline::blocks {

struct Q6_K {
  static constexpr DType kDType = DType::kQ6_K;
  static constexpr char kName[] = "q6_k";
  static constexpr int kGgufType = 14, kElements = 256, kBytes = 210, kGroup = 16, kMaxCode = 32;
  static constexpr bool kHasMins = false;

  REDLINE_BLOCK_INLINE void unpack_i8(const uint8_t* __restrict block, int8_t* __restrict codes,
                                      float* __restrict scales, float* __restrict mins) {
    const float d = load_half(block + 208);
    for (int g = 0; g < 16; ++g) scales[g] = d * static_cast<float>(static_cast<int8_t>(block[192 + g]));
    for (int half = 0; half < 2; ++half)
      for (int quarter = 0; quarter < 4; ++quarter)
        for (int i = 0; i < 32; ++i) {
          const int low = (block[64 * half + 32 * (quarter % 2) + i] >> (4 * (quarter / 2))) & 15;
          const int high = (block[128 + 32 * half + i] >> (2 * quarter)) & 3;
          codes[128 * half + 32 * quarter + i] = static_cast<int8_t>((low | high << 4) - 32);
        }
  }
};

}  // namespace redline::blocks
