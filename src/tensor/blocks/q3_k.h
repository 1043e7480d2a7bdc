// Q3_K: 256 elements, 3 bits. 32 bytes of high bits (element e: byte e % 32, bit e / 32); 64 bytes of low bits as Q2_K;
// 16 scales of 6 bits in 12 bytes (four low bits: byte g % 8, nibble g / 8; two high bits: byte 8 + g % 4, bits
// 2 (g / 4)); f16 d. value = (d (scale - 32)) q, q = low bits - (high bit ? 0 : 4).
#pragma once

#include "tensor/blocks/row_panel.h"

namespace redline::blocks {

struct Q3_K {
  static constexpr DType kDType = DType::kQ3_K;
  static constexpr char kName[] = "q3_k";
  static constexpr int kGgufType = 11, kElements = 256, kBytes = 110, kGroup = 16, kMaxCode = 4;
  static constexpr bool kHasMins = false;
  static constexpr int kOffset = 4;
  using Planes = Planes3;
  using Head = SubScaleHead<Q3_K, 108>;

  REDLINE_BLOCK_INLINE void unpack_i8(const uint8_t* __restrict block, int8_t* __restrict codes,
                                      float* __restrict scales, float* __restrict mins) {
    const float d = load_half(block + 108);
    const uint8_t* packed = block + 96;
    for (int g = 0; g < 16; ++g) {
      const int low = (packed[g % 8] >> (4 * (g / 8))) & 15;
      const int high = (packed[8 + g % 4] >> (2 * (g / 4))) & 3;
      scales[g] = d * static_cast<float>((low | high << 4) - 32);
    }
    for (int part = 0; part < 4; ++part) {  // 16 bytes hold 16 elements of each quarter of a half block
      const Bytes16 bits = load_bytes(block + 32 + 16 * part);
      int8_t* out = codes + 128 * (part / 2) + 16 * (part % 2);
      Bytes16 high = load_bytes(block + 16 * (part % 2));
      if (part >= 2) high >>= 4;
      store_codes(out, ((bits & 3) | ((high << 2) & 4)) - 4);
      store_codes(out + 32, (((bits >> 2) & 3) | ((high << 1) & 4)) - 4);
      store_codes(out + 64, (((bits >> 4) & 3) | (high & 4)) - 4);
      store_codes(out + 96, ((bits >> 6) | ((high >> 1) & 4)) - 4);
    }
  }

  REDLINE_BLOCK_INLINE int sub_scale(const uint8_t* block, int g) {
    const int low = (block[96 + g % 8] >> (4 * (g / 8))) & 15;
    const int high = (block[104 + g % 4] >> (2 * (g / 4))) & 3;
    return (low | high << 4) - 32;
  }
};

}  // namespace redline::blocks
