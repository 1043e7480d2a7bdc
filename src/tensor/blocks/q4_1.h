// Q4_1: 32 elements, 4 bits. f16 d, f16 m; 16 bytes of nibbles as Q4_0. value = d q + m.
#pragma once

#include "tensor/blocks/row_panel.h"

namespace redline::blocks {

struct Q4_1 {
  static constexpr DType kDType = DType::kQ4_1;
  static constexpr char kName[] = "q4_1";
  static constexpr int kGgufType = 3, kElements = 32, kBytes = 20, kGroup = 32, kMaxCode = 15;
  static constexpr bool kHasMins = true;
  static constexpr int kOffset = 0;
  using Planes = Planes4;
  using Head = HalfPairHead;

  REDLINE_BLOCK_INLINE void unpack_i8(const uint8_t* __restrict block, int8_t* __restrict codes,
                                      float* __restrict scales, float* __restrict mins) {
    scales[0] = load_half(block);
    mins[0] = -load_half(block + 2);
    const Bytes16 nibbles = load_bytes(block + 4);
    store_codes(codes, nibbles & 15);
    store_codes(codes + 16, nibbles >> 4);
  }
};

}  // namespace redline::blocks
