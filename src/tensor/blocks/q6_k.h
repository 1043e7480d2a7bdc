// Q6_K: 256 elements, 6 bits. 128 bytes of low nibbles (element e: byte 64 (e / 128) + e % 64, nibble e % 128 / 64), 64
// bytes of high bits as Q2_K, 16 int8 scales, f16 d. value = (d scale) (q - 32).
#pragma once

#include "tensor/blocks/row_panel.h"

namespace redline::blocks {

struct Q6_K {
  static constexpr DType kDType = DType::kQ6_K;
  static constexpr char kName[] = "q6_k";
  static constexpr int kGgufType = 14, kElements = 256, kBytes = 210, kGroup = 16, kMaxCode = 32;
  static constexpr bool kHasMins = false;
  static constexpr int kOffset = 32;
  using Planes = Planes6;
  using Head = SubScaleHead<Q6_K, 208>;

  REDLINE_BLOCK_INLINE void unpack_i8(const uint8_t* __restrict block, int8_t* __restrict codes,
                                      float* __restrict scales, float* __restrict mins) {
    const float d = load_half(block + 208);
    for (int g = 0; g < 16; ++g) scales[g] = d * static_cast<float>(static_cast<int8_t>(block[192 + g]));
    for (int part = 0; part < 4; ++part) {
      const uint8_t* low = block + 64 * (part / 2) + 16 * (part % 2);
      const Bytes16 low0 = load_bytes(low), low1 = load_bytes(low + 32);
      const Bytes16 high = load_bytes(block + 128 + 16 * part);
      int8_t* out = codes + 128 * (part / 2) + 16 * (part % 2);
      store_codes(out, ((low0 & 15) | ((high << 4) & 48)) - 32);
      store_codes(out + 32, ((low1 & 15) | ((high << 2) & 48)) - 32);
      store_codes(out + 64, ((low0 >> 4) | (high & 48)) - 32);
      store_codes(out + 96, ((low1 >> 4) | ((high >> 2) & 48)) - 32);
    }
  }

  REDLINE_BLOCK_INLINE int sub_scale(const uint8_t* block, int g) { return static_cast<int8_t>(block[192 + g]); }
};

}  // namespace redline::blocks
