// TQ2_0: 256 ternary elements, 2 bits each: 64 bytes as Q2_K, f16 d. value = d (q - 1).
#pragma once

#include "tensor/blocks/block.h"

namespace redline::blocks {

struct TQ2_0 {
  static constexpr DType kDType = DType::kTQ2_0;
  static constexpr char kName[] = "tq2_0";
  static constexpr int kGgufType = 35, kElements = 256, kBytes = 66, kGroup = 32, kMaxCode = 2;
  static constexpr bool kHasMins = false;

  REDLINE_BLOCK_INLINE void unpack_i8(const uint8_t* __restrict block, int8_t* __restrict codes,
                                      float* __restrict scales, float* __restrict mins) {
    const float d = load_half(block + 64);
    for (int g = 0; g < 8; ++g) scales[g] = d;
    for (int half = 0; half < 2; ++half)
      for (int quarter = 0; quarter < 4; ++quarter)
        for (int i = 0; i < 32; ++i)
          codes[128 * half + 32 * quarter + i] = static_cast<int8_t>(((block[32 * half + i] >> (2 * quarter)) & 3) - 1);
  }
};

}  // namespace redline::blocks
