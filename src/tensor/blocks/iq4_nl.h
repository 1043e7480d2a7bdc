// IQ4_NL: 32 elements, 4 bits through a table of 16 values. f16 d; nibbles as Q4_0. value = d table[q].
#pragma once

#include "tensor/blocks/code_tables.h"
#include "tensor/blocks/row_panel.h"

namespace redline::blocks {

struct IQ4_NL {
  static constexpr DType kDType = DType::kIQ4_NL;
  static constexpr char kName[] = "iq4_nl";
  static constexpr int kGgufType = 20, kElements = 32, kBytes = 18, kGroup = 32, kMaxCode = 127;
  static constexpr bool kHasMins = false;
  static constexpr int kOffset = 128;
  using Planes = Planes4;
  using Head = HalfHead<0>;
  static constexpr const uint8_t* kTable = kIq4Unsigned;

  REDLINE_BLOCK_INLINE void unpack_i8(const uint8_t* __restrict block, int8_t* __restrict codes,
                                      float* __restrict scales, float* __restrict mins) {
    scales[0] = load_half(block);
    const Bytes16 nibbles = load_bytes(block + 2);
    store_codes(codes, look_up(kIq4Codes, nibbles & 15));
    store_codes(codes + 16, look_up(kIq4Codes, nibbles >> 4));
  }

  REDLINE_BLOCK_INLINE void nibbles(const uint8_t* block, uint8_t* q) {
    const Bytes16 bytes = load_bytes(block + 2);
    store_bytes(q, bytes & 15);
    store_bytes(q + 16, bytes >> 4);
  }
};

}  // namespace redline::blocks
