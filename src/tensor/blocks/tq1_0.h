// TQ1_0: 256 ternary elements, 5 to a byte: byte b holds ceil(256 t / 243), t = sum of digit n times 3^(4 - n), so that
// digit n is (3 (b 3^n mod 256)) / 256. 48 bytes: digits of elements 0-159 (32 bytes) and 160-239 (16 bytes), digit
// number slowest; 4 bytes with 4 digits each: elements 240-255; f16 d. value = d (digit - 1).
#pragma once

#include "tensor/blocks/row_panel.h"

namespace redline::blocks {

struct TQ1_0 {
  static constexpr DType kDType = DType::kTQ1_0;
  static constexpr char kName[] = "tq1_0";
  static constexpr int kGgufType = 34, kElements = 256, kBytes = 54, kGroup = 32, kMaxCode = 1;
  static constexpr bool kHasMins = false;
  static constexpr int kOffset = 1;
  using Planes = Planes2;
  using Head = HalfHead<52>;

  REDLINE_BLOCK_INLINE void unpack_i8(const uint8_t* __restrict block, int8_t* __restrict codes,
                                      float* __restrict scales, float* __restrict mins) {
    constexpr uint8_t kPowers[5] = {1, 3, 9, 27, 81};
    const float d = load_half(block + 52);
    for (int g = 0; g < 8; ++g) scales[g] = d;
    for (int n = 0; n < 5; ++n) {
      for (int i = 0; i < 32; ++i) codes[32 * n + i] = digit(block[i], kPowers[n]);
      for (int i = 0; i < 16; ++i) codes[160 + 16 * n + i] = digit(block[32 + i], kPowers[n]);
    }
    for (int n = 0; n < 4; ++n)
      for (int i = 0; i < 4; ++i) codes[240 + 4 * n + i] = digit(block[48 + i], kPowers[n]);
  }

 private:
  REDLINE_BLOCK_INLINE int8_t digit(uint8_t byte, uint8_t power) {
    return static_cast<int8_t>((static_cast<uint8_t>(byte * power) * 3 >> 8) - 1);
  }
};

}  // namespace redline::blocks
