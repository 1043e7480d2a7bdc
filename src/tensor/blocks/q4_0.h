// Q4_0: 32 elements, 4 bits. f16 d; 16 bytes of nibbles, low nibbles are elements 0-15. value = d (q - 8).
#pragma once

#include "tensor/blocks/row_panel.h"

namespace redline::blocks {

struct Q4_0 {
  static constexpr DType kDType = DType::kQ4_0;
  static constexpr char kName[] = "q4_0";
  static constexpr int kGgufType = 2, kElements = 32, kBytes = 18, kGroup = 32, kMaxCode = 8;
  static constexpr bool kHasMins = false;
  static constexpr int kOffset = 8;
  using Planes = Planes4;
  using Head = HalfHead<0>;

  REDLINE_BLOCK_INLINE void unpack_i8(const uint8_t* __restrict block, int8_t* __restrict codes,
                                      float* __restrict scales, float* __restrict mins) {
    scales[0] = load_half(block);
    const Bytes16 nibbles = load_bytes(block + 2);
    store_codes(codes, (nibbles & 15) - 8);
    store_codes(codes + 16, (nibbles >> 4) - 8);
  }
};

}  // namespace redline::blocks
