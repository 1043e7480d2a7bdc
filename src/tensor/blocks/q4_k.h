// Q4_K: 256 elements, 4 bits. f16 d, f16 dmin, 8 scales and mins of 6 bits (k_scales.h), 128 bytes of nibbles.
// Element e: byte 32 (e / 64) + e % 32, nibble e % 64 / 32. value = (d scale) q - (dmin min).
#pragma once

#include "tensor/blocks/k_scales.h"
#include "tensor/blocks/row_panel.h"

namespace redline::blocks {

struct Q4_K {
  static constexpr DType kDType = DType::kQ4_K;
  static constexpr char kName[] = "q4_k";
  static constexpr int kGgufType = 12, kElements = 256, kBytes = 144, kGroup = 32, kMaxCode = 15;
  static constexpr bool kHasMins = true;
  static constexpr int kOffset = 0;
  using Planes = Planes4;
  using Head = ScaleMinHead<Q4_K>;

  REDLINE_BLOCK_INLINE void unpack_i8(const uint8_t* __restrict block, int8_t* __restrict codes,
                                      float* __restrict scales, float* __restrict mins) {
    unpack_k_scales(block, scales, mins);
    for (int part = 0; part < 8; ++part) {
      const Bytes16 nibbles = load_bytes(block + 16 + 16 * part);
      int8_t* out = codes + 64 * (part / 2) + 16 * (part % 2);
      store_codes(out, nibbles & 15);
      store_codes(out + 32, nibbles >> 4);
    }
  }

  REDLINE_BLOCK_INLINE uint8_t sub_scale(const uint8_t* block, int g) { return k_sub_scale(block, g); }
  REDLINE_BLOCK_INLINE uint8_t sub_min(const uint8_t* block, int g) { return k_sub_min(block, g); }
};

}  // namespace redline::blocks
