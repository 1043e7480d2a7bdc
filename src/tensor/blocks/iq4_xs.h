// IQ4_XS: 256 elements, 4 bits through the table of IQ4_NL. f16 d; 8 scales of 6 bits: 16 bits with the high pairs, 4
// bytes of low nibbles; 128 bytes of nibbles, 16 for each 32 elements, as IQ4_NL. value = (d (scale - 32)) table[q].
#pragma once

#include "tensor/blocks/code_tables.h"
#include "tensor/blocks/row_panel.h"

namespace redline::blocks {

struct IQ4_XS {
  static constexpr DType kDType = DType::kIQ4_XS;
  static constexpr char kName[] = "iq4_xs";
  static constexpr int kGgufType = 23, kElements = 256, kBytes = 136, kGroup = 32, kMaxCode = 127;
  static constexpr bool kHasMins = false;
  static constexpr int kOffset = 128;
  using Planes = Planes4;
  using Head = SubScaleHead<IQ4_XS, 0>;
  static constexpr const uint8_t* kTable = kIq4Unsigned;

  REDLINE_BLOCK_INLINE void unpack_i8(const uint8_t* __restrict block, int8_t* __restrict codes,
                                      float* __restrict scales, float* __restrict mins) {
    const float d = load_half(block);
    const int high = load_u16(block + 2);
    for (int g = 0; g < 8; ++g) {
      const int scale = ((block[4 + g / 2] >> (4 * (g % 2))) & 15) | ((high >> (2 * g)) & 3) << 4;
      scales[g] = d * static_cast<float>(scale - 32);
      const Bytes16 nibbles = load_bytes(block + 8 + 16 * g);
      store_codes(codes + 32 * g, look_up(kIq4Codes, nibbles & 15));
      store_codes(codes + 32 * g + 16, look_up(kIq4Codes, nibbles >> 4));
    }
  }

  REDLINE_BLOCK_INLINE int sub_scale(const uint8_t* block, int g) {
    return ((block[4 + g / 2] >> (4 * (g % 2)) & 15) | (load_u16(block + 2) >> (2 * g) & 3) << 4) - 32;
  }
  REDLINE_BLOCK_INLINE void nibbles(const uint8_t* block, uint8_t* q) {
    for (int g = 0; g < 8; ++g) {
      const Bytes16 bytes = load_bytes(block + 8 + 16 * g);
      store_bytes(q + 32 * g, bytes & 15);
      store_bytes(q + 32 * g + 16, bytes >> 4);
    }
  }
};

}  // namespace redline::blocks
