// Tile units with products of float16, which CPUs of the set amx_fp16 have.
#pragma once

#include "kernels/cpu/tiles.h"

namespace redline::REDLINE_ISA_NS {

[[gnu::noinline]] inline void plain_dot_f16(const PlainTile& a, const PlainTile& b, PlainTile& c) {
  alignas(64) float left[16][32], right[2][16][16], pairs[32];  // right: even and odd K apart
  for (int r = 0; r < 16; ++r) {
    for (int i = 0; i < 32; i += kWidth) {
      store(&left[r][i], load(reinterpret_cast<const F16*>(a[r]) + i, Full{}), Full{});
      store(pairs + i, load(reinterpret_cast<const F16*>(b[r]) + i, Full{}), Full{});
    }
    for (int n = 0; n < 16; ++n) right[0][r][n] = pairs[2 * n], right[1][r][n] = pairs[2 * n + 1];
  }
  for (int n = 0; n < 16; n += kWidth) {
    for (int m = 0; m < 16; ++m) {
      VecF32 even = zero_f32(), odd = zero_f32();
      for (int k = 0; k < 16; ++k) {
        even = fma(set1(left[m][2 * k]), load(&right[0][k][n], Full{}), even);
        odd = fma(set1(left[m][2 * k + 1]), load(&right[1][k][n], Full{}), odd);
      }
      auto* sums = reinterpret_cast<float*>(&c[m][4 * n]);
      store(sums, load(sums, Full{}) + (even + odd), Full{});
    }
  }
}

/// PlainTiles with TDPFP16PS.
struct PlainF16Tiles : PlainTiles {
  /// Adds products of float16 pairs: even and odd K in separate sums, fused multiply-add, both added to C at the end.
  template <int c, int a, int b>
  void dot_f16() {
    plain_dot_f16(bytes[a], bytes[b], bytes[c]);
  }
};

#if defined(__AMX_TILE__) || defined(__AMXTILE__)
struct AmxF16Tiles : AmxTiles {
  /// Adds these products by tdpfp16ps, encoded as bytes for assemblers older than the instruction.
  template <int c, int a, int b>
  void dot_f16() {
    asm volatile(".byte 0xc4, 0xe2, %c0, 0x5c, %c1" : : "i"((~b & 15) << 3 | 3), "i"(0xc0 | c << 3 | a));
  }
};
#endif

}  // namespace redline::REDLINE_ISA_NS
