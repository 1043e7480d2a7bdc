// TQ2_0: 256 ternary elements, 2 bits each: 64 bytes as Q2_K, f16 d. value = d (q - 1).
#pragma once

#include "tensor/blocks/row_panel.h"

namespace redline::blocks {

struct TQ2_0 {
  static constexpr DType kDType = DType::kTQ2_0;
  static constexpr char kName[] = "tq2_0";
  static constexpr int kGgufType = 35, kElements = 256, kBytes = 66, kGroup = 32, kMaxCode = 2;
  static constexpr bool kHasMins = false;
  static constexpr int kOffset = 1;
  using Planes = Planes2;
  using Head = HalfHead<64>;

  REDLINE_BLOCK_INLINE void unpack_i8(const uint8_t* __restrict block, int8_t* __restrict codes,
                                      float* __restrict scales, float* __restrict mins) {
    const float d = load_half(block + 64);
    for (int g = 0; g < 8; ++g) scales[g] = d;
    for (int part = 0; part < 4; ++part) {  // 16 bytes hold 16 elements of each quarter of a half block
      const Bytes16 bits = load_bytes(block + 16 * part);
      int8_t* out = codes + 128 * (part / 2) + 16 * (part % 2);
      store_codes(out, (bits & 3) - 1);
      store_codes(out + 32, ((bits >> 2) & 3) - 1);
      store_codes(out + 64, ((bits >> 4) & 3) - 1);
      store_codes(out + 96, (bits >> 6) - 1);
    }
  }
};

}  // namespace redline::blocks
