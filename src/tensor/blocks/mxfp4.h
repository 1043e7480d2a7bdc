// MXFP4: 32 elements of the OCP microscaling format: one shared exponent byte, 16 bytes of E2M1 nibbles as Q4_0. Codes
// are doubled E2M1 values, so the scale is 2^(e - 128).
#pragma once

#include "tensor/blocks/code_tables.h"
#include "tensor/blocks/row_panel.h"

namespace redline::blocks {

struct MXFP4 {
  static constexpr DType kDType = DType::kMXFP4;
  static constexpr char kName[] = "mxfp4";
  static constexpr int kGgufType = 39, kElements = 32, kBytes = 17, kGroup = 32, kMaxCode = 12;
  static constexpr bool kHasMins = false;
  static constexpr int kOffset = 12;
  using Planes = Planes4;
  using Head = ExponentHead;
  static constexpr const uint8_t* kTable = kE2m1Unsigned;

  REDLINE_BLOCK_INLINE void unpack_i8(const uint8_t* __restrict block, int8_t* __restrict codes,
                                      float* __restrict scales, float* __restrict mins) {
    // 2^(e - 128) is subnormal below e = 2.
    const uint32_t e = block[0];
    scales[0] = __builtin_bit_cast(float, e < 2 ? 0x00200000u << e : (e - 1) << 23);
    const Bytes16 nibbles = load_bytes(block + 1);
    store_codes(codes, look_up(kE2m1DoubledCodes, nibbles & 15));
    store_codes(codes + 16, look_up(kE2m1DoubledCodes, nibbles >> 4));
  }

  REDLINE_BLOCK_INLINE void nibbles(const uint8_t* block, uint8_t* q) {
    const Bytes16 bytes = load_bytes(block + 1);
    store_bytes(q, bytes & 15);
    store_bytes(q + 16, bytes >> 4);
  }
};

}  // namespace redline::blocks
