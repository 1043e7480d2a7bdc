// IQ3_S: 256 elements, 3.44 bits: each 4 elements are a row of a 512-row grid of odd magnitudes, with separate signs.
// f16 d; 64 bytes: low 8 bits of the row numbers; 8 bytes: their ninth bits; 32 bytes of signs, element e at bit e; 4
// bytes: a 4-bit scale for each 32 elements. value = (d (1 + 2 scale)) (+-grid).
#pragma once

#include "tensor/blocks/code_tables.h"
#include "tensor/blocks/iq3_s_grid.h"
#include "tensor/blocks/row_panel.h"

namespace redline::blocks {

struct IQ3_S {
  static constexpr DType kDType = DType::kIQ3_S;
  static constexpr char kName[] = "iq3_s";
  static constexpr int kGgufType = 21, kElements = 256, kBytes = 110, kGroup = 32, kMaxCode = 15;
  static constexpr bool kHasMins = false;
  static constexpr int kOffset = 15;
  using Planes = Planes4;
  using Head = SubScaleHead<IQ3_S, 0>;
  static constexpr const uint8_t* kTable = kOddUnsigned;

  REDLINE_BLOCK_INLINE void unpack_i8(const uint8_t* __restrict block, int8_t* __restrict codes,
                                      float* __restrict scales, float* __restrict mins) {
    const float d = load_half(block);
    for (int g = 0; g < 8; ++g) {
      const int scale = (block[106 + g / 2] >> (4 * (g % 2))) & 15;
      scales[g] = d * static_cast<float>(1 + 2 * scale);
      for (int half = 0; half < 2; ++half) {
        uint32_t magnitudes[4];
        for (int quad = 0; quad < 4; ++quad) {
          const int at = 4 * half + quad;
          magnitudes[quad] = kIq3sGrid.rows[block[2 + 8 * g + at] | ((block[66 + g] >> at) & 1) << 8];
        }
        Bytes16 bytes;
        __builtin_memcpy(&bytes, magnitudes, 16);
        const Bytes16 negative = spread_bits(load_u16(block + 74 + 4 * g + 2 * half));
        store_codes(codes + 32 * g + 16 * half, (bytes ^ negative) - negative);
      }
    }
  }

  REDLINE_BLOCK_INLINE int sub_scale(const uint8_t* block, int g) {
    return 1 + 2 * (block[106 + g / 2] >> (4 * (g % 2)) & 15);
  }
  // When packed, an element is a nibble: the odd number code = 2 nibble - 15. That takes 138 bytes instead of 110;
  // reading grid rows was 20 times slower.
  REDLINE_BLOCK_INLINE void nibbles(const uint8_t* block, uint8_t* q) {
    int8_t codes[kElements];
    float scales[8];
    unpack_i8(block, codes, scales, nullptr);
    for (int i = 0; i < kElements; ++i) q[i] = static_cast<uint8_t>((codes[i] + 15) >> 1);
  }
};

}  // namespace redline::blocks
