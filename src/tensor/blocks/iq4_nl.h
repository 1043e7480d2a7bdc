// IQ4_NL: 32 elements, 4 bits through a table of 16 values. f16 d; nibbles as Q4_0. value = d table[q].
#pragma once

#include "tensor/blocks/block.h"
#include "tensor/blocks/code_tables.h"

namespace redline::blocks {

struct IQ4_NL {
  static constexpr DType kDType = DType::kIQ4_NL;
  static constexpr char kName[] = "iq4_nl";
  static constexpr int kGgufType = 20, kElements = 32, kBytes = 18, kGroup = 32, kMaxCode = 127;
  static constexpr bool kHasMins = false;

  REDLINE_BLOCK_INLINE void unpack_i8(const uint8_t* __restrict block, int8_t* __restrict codes,
                                      float* __restrict scales, float* __restrict mins) {
    scales[0] = load_half(block);
    for (int i = 0; i < 16; ++i) {
      codes[i] = kIq4Codes[block[2 + i] & 15];
      codes[i + 16] = kIq4Codes[block[2 + i] >> 4];
    }
  }
};

}  // namespace redline::blocks
