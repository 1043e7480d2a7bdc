// Tile products of 16 rows x 64 bytes: the AMX instructions, and a portable C++ emulation of them.
//
// There are eight tiles. Kernels take the unit as a template parameter and number tiles by convention: C in 0..3, A in
// 4 and 5, B in 6 and 7 (a 2 x 2 block of products). With K in steps of 64 bytes:
//   A  [16 rows of the left matrix][64 bytes of K]
//   B  [16 groups of 4 bytes of K][16 columns][4 bytes]     the order of packed weights (tensor/packed_weight.h)
//   C  [16 rows][16 columns] int32 or float32
// worker_begin() of the amx table has configured all eight tiles to that shape for the calling thread.
#pragma once

#include <cstdint>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace redline::REDLINE_ISA_NS {

/// Products of PlainTiles; lanes are columns of C.
using PlainTile = uint8_t[16][64];
[[gnu::noinline]] inline void plain_dot_bf16(const PlainTile& a, const PlainTile& b, PlainTile& c) {
  const VecI32 high = set1_i32(static_cast<int32_t>(0xffff0000u));
  for (int n = 0; n < 16; n += kWidth) {
    for (int m = 0; m < 16; ++m) {
      VecF32 even = zero_f32(), odd = zero_f32();
      for (int k = 0; k < 16; ++k) {
        int32_t pair;
        __builtin_memcpy(&pair, &a[m][4 * k], 4);
        const VecI32 left = set1_i32(pair), right = load_i32(&b[k][4 * n]);
        even = fma(bits_f32(shl<16>(left)), bits_f32(shl<16>(right)), even);
        odd = fma(bits_f32(left & high), bits_f32(right & high), odd);
      }
      auto* sums = reinterpret_cast<float*>(&c[m][4 * n]);
      store(sums, load(sums, Full{}) + (even + odd), Full{});
    }
  }
}
template <class Left>
[[gnu::noinline]] inline void plain_dot_bytes(const PlainTile& a, const PlainTile& b, PlainTile& c) {
  for (int n = 0; n < 16; n += kWidth) {
    for (int m = 0; m < 16; ++m) {
      VecI32 sum = load_i32(&c[m][4 * n]);
      for (int k = 0; k < 16; ++k) {
        const VecI32 four = load_i32(&b[k][4 * n]);
        const auto left = [&](int j) { return set1_i32(static_cast<Left>(a[m][4 * k + j])); };
        sum = sum + left(0) * sar<24>(shl<24>(four)) + left(1) * sar<24>(shl<16>(four)) +
              left(2) * sar<24>(shl<8>(four)) + left(3) * sar<24>(four);
      }
      store(reinterpret_cast<int32_t*>(&c[m][4 * n]), sum, Full{});
    }
  }
}

/// The emulation of the tile unit. Products follow the definition of the instructions (Intel SDM, TDPBSSD and
/// TDPBF16PS) bit for bit, except that subnormal float inputs and results are kept where the instruction flushes them
/// to zero, and that the generic set rounds products below the normal floats. Not inlined: it is for compiling and
/// testing.
struct PlainTiles {
  static constexpr bool kIsDots = false;
  alignas(64) uint8_t bytes[8][16][64];

  template <int tile>
  void zero() {
    __builtin_memset(bytes[tile], 0, sizeof(bytes[tile]));
  }
  template <int tile>
  [[gnu::noinline]] void load(const void* rows, int64_t stride_bytes) {
    for (int r = 0; r < 16; ++r)
      __builtin_memcpy(bytes[tile][r], static_cast<const char*>(rows) + r * stride_bytes, 64);
  }
  /// Loads data that is used once and then evicted from L1.
  template <int tile>
  void load_once(const void* rows, int64_t stride_bytes) {
    load<tile>(rows, stride_bytes);
  }
  template <int tile>
  [[gnu::noinline]] void store(void* rows, int64_t stride_bytes) const {
    for (int r = 0; r < 16; ++r) __builtin_memcpy(static_cast<char*>(rows) + r * stride_bytes, bytes[tile][r], 64);
  }
  /// Adds C[m][n] += sum_k A[m][k] B[k][n] with signed bytes, wrapping int32.
  template <int c, int a, int b>
  void dot_s8s8() {
    plain_dot_bytes<int8_t>(bytes[a], bytes[b], bytes[c]);
  }
  /// Adds these products with unsigned A.
  template <int c, int a, int b>
  void dot_u8s8() {
    plain_dot_bytes<uint8_t>(bytes[a], bytes[b], bytes[c]);
  }
  /// Adds products of bfloat16 pairs: even and odd K in separate sums, fused multiply-add, both added to C at the end.
  template <int c, int a, int b>
  void dot_bf16() {
    plain_dot_bf16(bytes[a], bytes[b], bytes[c]);
  }
};

#if defined(__AMX_TILE__) || defined(__AMXTILE__)  // GCC and Clang spell it differently
/// The AMX unit. It uses inline assembly, because GCC 12's intrinsics take tile numbers only as literal tokens and
/// declare neither the memory that a load reads nor that of a configuration; "memory" orders them with plain stores.
struct AmxTiles {
  static constexpr bool kIsDots = false;  ///< see AttentionDots

  template <int tile>
  void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(tile));
  }
  template <int tile>
  void load(const void* rows, int64_t stride_bytes) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(rows), "r"(stride_bytes), "i"(tile) : "memory");
  }
  template <int tile>
  void load_once(const void* rows, int64_t stride_bytes) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" : : "r"(rows), "r"(stride_bytes), "i"(tile) : "memory");
  }
  template <int tile>
  void store(void* rows, int64_t stride_bytes) const {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(rows), "r"(stride_bytes), "i"(tile) : "memory");
  }
  template <int c, int a, int b>
  void dot_s8s8() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
  }
  template <int c, int a, int b>
  void dot_u8s8() {
    asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
  }
  template <int c, int a, int b>
  void dot_bf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
  }
};
#endif

/// Computes one product on any unit: implements the table's tile_product.
template <class Unit>
void tile_product(Unit& unit, const TileProductArgs& args) {
  unit.template load<0>(args.c, 64);
  unit.template load<4>(args.a, 64);
  unit.template load<6>(args.b, 64);
  switch (args.kind) {
    case TileProductArgs::kS8S8: unit.template dot_s8s8<0, 4, 6>(); break;
    case TileProductArgs::kU8S8: unit.template dot_u8s8<0, 4, 6>(); break;
    case TileProductArgs::kBF16: unit.template dot_bf16<0, 4, 6>(); break;
  }
  unit.template store<0>(args.c, 64);
}

}  // namespace redline::REDLINE_ISA_NS
