// Q2_K: 256 elements, 2 bits. 16 bytes: 4-bit scale and 4-bit min of each 16 elements; 64 bytes of codes; f16 d;
// f16 dmin. Element e: byte 32 (e / 128) + e % 32, bits 2 (e % 128 / 32). value = (d scale) q - (dmin min).
#pragma once

#include "tensor/blocks/row_panel.h"

namespace redline::blocks {

struct Q2_K {
  static constexpr DType kDType = DType::kQ2_K;
  static constexpr char kName[] = "q2_k";
  static constexpr int kGgufType = 10, kElements = 256, kBytes = 84, kGroup = 16, kMaxCode = 3;
  static constexpr bool kHasMins = true;
  static constexpr int kOffset = 0;
  using Planes = Planes2;
  using Head = NibbleScaleMinHead<80>;

  REDLINE_BLOCK_INLINE void unpack_i8(const uint8_t* __restrict block, int8_t* __restrict codes,
                                      float* __restrict scales, float* __restrict mins) {
    const float d = load_half(block + 80), dmin = load_half(block + 82);
    for (int g = 0; g < 16; ++g) {
      scales[g] = d * static_cast<float>(block[g] & 15);
      mins[g] = dmin * static_cast<float>(block[g] >> 4);
    }
    for (int part = 0; part < 4; ++part) {  // 16 bytes hold 16 elements of each quarter of a half block
      const Bytes16 bits = load_bytes(block + 16 + 16 * part);
      int8_t* out = codes + 128 * (part / 2) + 16 * (part % 2);
      store_codes(out, bits & 3);
      store_codes(out + 32, (bits >> 2) & 3);
      store_codes(out + 64, (bits >> 4) & 3);
      store_codes(out + 96, bits >> 6);
    }
  }
};

}  // namespace redline::blocks
