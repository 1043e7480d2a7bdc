// Q8_0: 32 elements, 8 bits. f16 d; 32 int8. value = d q.
#pragma once

#include "tensor/blocks/row_panel.h"

namespace redline::blocks {

struct Q8_0 {
  static constexpr DType kDType = DType::kQ8_0;
  static constexpr char kName[] = "q8_0";
  static constexpr int kGgufType = 8, kElements = 32, kBytes = 34, kGroup = 32, kMaxCode = 128;
  static constexpr bool kHasMins = false;
  static constexpr int kOffset = 128;
  using Planes = Planes8;
  using Head = HalfHead<0>;

  REDLINE_BLOCK_INLINE void unpack_i8(const uint8_t* __restrict block, int8_t* __restrict codes,
                                      float* __restrict scales, float* __restrict mins) {
    scales[0] = load_half(block);
    for (int i = 0; i < 32; ++i) codes[i] = static_cast<int8_t>(block[2 + i]);
  }

  REDLINE_BLOCK_INLINE void round(const float* values, uint8_t* block) {
    float most = 0;
    for (int i = 0; i < 32; ++i) {
      const float size = __builtin_fabsf(values[i]);
      if (most < size) most = size;
    }
    const uint16_t scale = f32_to_f16(most / 127);
    __builtin_memcpy(block, &scale, 2);
    // Divide by the scale as stored, so that its rounding costs no accuracy; a scale that rounds to zero gives zeros.
    const float stored = half_to_float(scale), inverse = stored > 0 && __builtin_isfinite(stored) ? 1 / stored : 0;
    for (int i = 0; i < 32; ++i) block[2 + i] = round_code(values[i] * inverse);
  }
};

}  // namespace redline::blocks
