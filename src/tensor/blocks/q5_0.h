// Q5_0: 32 elements, 5 bits. f16 d; 32 fifth bits, element i at bit i; nibbles as Q4_0. value = d (q - 16).
#pragma once

#include "tensor/blocks/row_panel.h"

namespace redline::blocks {

struct Q5_0 {
  static constexpr DType kDType = DType::kQ5_0;
  static constexpr char kName[] = "q5_0";
  static constexpr int kGgufType = 6, kElements = 32, kBytes = 22, kGroup = 32, kMaxCode = 16;
  static constexpr bool kHasMins = false;
  static constexpr int kOffset = 16;
  using Planes = Planes5;
  using Head = HalfHead<0>;

  REDLINE_BLOCK_INLINE void unpack_i8(const uint8_t* __restrict block, int8_t* __restrict codes,
                                      float* __restrict scales, float* __restrict mins) {
    scales[0] = load_half(block);
    const Bytes16 nibbles = load_bytes(block + 6);
    store_codes(codes, ((nibbles & 15) | (spread_bits(load_u16(block + 2)) & 16)) - 16);
    store_codes(codes + 16, ((nibbles >> 4) | (spread_bits(load_u16(block + 4)) & 16)) - 16);
  }
};

}  // namespace redline::blocks
