// Q5_1: 32 elements, 5 bits. f16 d, f16 m; fifth bits and nibbles as Q5_0. value = d q + m.
#pragma once

#include "tensor/blocks/row_panel.h"

namespace redline::blocks {

struct Q5_1 {
  static constexpr DType kDType = DType::kQ5_1;
  static constexpr char kName[] = "q5_1";
  static constexpr int kGgufType = 7, kElements = 32, kBytes = 24, kGroup = 32, kMaxCode = 31;
  static constexpr bool kHasMins = true;
  static constexpr int kOffset = 0;
  using Planes = Planes5;
  using Head = HalfPairHead;

  REDLINE_BLOCK_INLINE void unpack_i8(const uint8_t* __restrict block, int8_t* __restrict codes,
                                      float* __restrict scales, float* __restrict mins) {
    scales[0] = load_half(block);
    mins[0] = -load_half(block + 2);
    const Bytes16 nibbles = load_bytes(block + 8);
    store_codes(codes, (nibbles & 15) | (spread_bits(load_u16(block + 4)) & 16));
    store_codes(codes + 16, (nibbles >> 4) | (spread_bits(load_u16(block + 6)) & 16));
  }
};

}  // namespace redline::blocks
