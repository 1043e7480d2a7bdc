// Q5_0: 32 elements, 5 bits. f16 d; 32 fifth bits, element i at bit i; nibbles as Q4_0. value = d (q - 16).
#pragma once

#include "tensor/blocks/block.h"

namespace redline::blocks {

struct Q5_0 {
  static constexpr DType kDType = DType::kQ5_0;
  static constexpr char kName[] = "q5_0";
  static constexpr int kGgufType = 6, kElements = 32, kBytes = 22, kGroup = 32, kMaxCode = 16;
  static constexpr bool kHasMins = false;

  REDLINE_BLOCK_INLINE void unpack_i8(const uint8_t* __restrict block, int8_t* __restrict codes,
                                      float* __restrict scales, float* __restrict mins) {
    scales[0] = load_half(block);
    const uint32_t high = load_u16(block + 2) | static_cast<uint32_t>(load_u16(block + 4)) << 16;
    for (int i = 0; i < 16; ++i) {
      codes[i] = static_cast<int8_t>(((block[6 + i] & 15) | ((high >> i) & 1) << 4) - 16);
      codes[i + 16] = static_cast<int8_t>(((block[6 + i] >> 4) | ((high >> (i + 16)) & 1) << 4) - 16);
    }
  }
};

}  // namespace redline::blocks
