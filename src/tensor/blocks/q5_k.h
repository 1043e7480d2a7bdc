// Q5_K: 256 elements, 5 bits. As Q4_K, with 32 bytes of fifth bits before the nibbles: element e at
// byte e % 32, bit e / 32.
#pragma once

#include "tensor/blocks/k_scales.h"
#include "tensor/blocks/row_panel.h"

namespace redline::blocks {

struct Q5_K {
  static constexpr DType kDType = DType::kQ5_K;
  static constexpr char kName[] = "q5_k";
  static constexpr int kGgufType = 13, kElements = 256, kBytes = 176, kGroup = 32, kMaxCode = 31;
  static constexpr bool kHasMins = true;
  static constexpr int kOffset = 0;
  using Planes = Planes5;
  using Head = ScaleMinHead<Q5_K>;

  REDLINE_BLOCK_INLINE void unpack_i8(const uint8_t* __restrict block, int8_t* __restrict codes,
                                      float* __restrict scales, float* __restrict mins) {
    unpack_k_scales(block, scales, mins);
    Bytes16 high[2] = {load_bytes(block + 16), load_bytes(block + 32)};
    for (int part = 0; part < 8; ++part) {
      const Bytes16 nibbles = load_bytes(block + 48 + 16 * part);
      Bytes16& bits = high[part % 2];
      int8_t* out = codes + 64 * (part / 2) + 16 * (part % 2);
      store_codes(out, (nibbles & 15) | ((bits << 4) & 16));
      store_codes(out + 32, (nibbles >> 4) | ((bits << 3) & 16));
      bits >>= 2;
    }
  }

  REDLINE_BLOCK_INLINE uint8_t sub_scale(const uint8_t* block, int g) { return k_sub_scale(block, g); }
  REDLINE_BLOCK_INLINE uint8_t sub_min(const uint8_t* block, int g) { return k_sub_min(block, g); }
};

}  // namespace redline::blocks
