// Operands of a tensor core product as registers of the lanes, in the order of PTX's mma.sync.m16n8k16 (PTX ISA
// 9.7.14).
//
//   A  16 x 16 bf16, row-major: lane (g, t) = (lane / 4, lane % 4) has rows g and g + 8
//        a[0] row g, columns 2t, 2t+1     a[1] row g + 8, the same
//        a[2] row g, columns 2t+8, 2t+9   a[3] row g + 8, the same
//   B  16 x 8 bf16: b[0] rows 2t, 2t+1 of column g;  b[1] rows 2t+8, 2t+9
//   C  16 x 8 float32: c[0], c[1] row g, columns 2t, 2t+1;  c[2], c[3] row g + 8
//
// And of mma.sync.m16n8k32 with int8: A 16 x 32, four columns in a register: a[0] row g, columns 4t .. 4t+3, a[1] row
// g + 8, a[2] and a[3] columns 4t+16 .. 4t+19; B b[0] rows 4t .. 4t+3 of column g, b[1] rows 4t+16 .. 4t+19; C the same
// in int32, sums exact.
//
// A sum over K does not depend on the order of K, if A and B agree. The packed weights (tensor/packed_weight.h) use
// that: lane (g, t) holds elements 4t .. 4t+3 of each 16, which are contiguous in memory in a row panel and in a row of
// x.
#pragma once

#include "kernels/tiles/warp.h"

namespace redline::tiles {

struct FragmentA {
  Lanes<uint32_t> a[4];
};
struct FragmentB {
  Lanes<uint32_t> b[2];
};
struct FragmentC {
  Lanes<float> c[4];
};
struct FragmentSums {
  Lanes<int32_t> c[4];
};

TILE_FN Lanes<int> fragment_group(const Lanes<int>& lane) { return lane / 4; }
TILE_FN Lanes<int> fragment_thread(const Lanes<int>& lane) { return lane % 4; }

TILE_FN FragmentC zero_c() { return {{0.0f, 0.0f, 0.0f, 0.0f}}; }
TILE_FN FragmentSums zero_sums() { return {{0, 0, 0, 0}}; }

#ifdef __CUDACC__

/// c += a b
TILE_FN void mma_bf16(Warp&, const FragmentA& a, const FragmentB& b, FragmentC& c) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c.c[0]), "+f"(c.c[1]), "+f"(c.c[2]), "+f"(c.c[3])
      : "r"(a.a[0]), "r"(a.a[1]), "r"(a.a[2]), "r"(a.a[3]), "r"(b.b[0]), "r"(b.b[1]));
}
/// Computes c += a b with float16 factors.
TILE_FN void mma_f16(Warp&, const FragmentA& a, const FragmentB& b, FragmentC& c) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c.c[0]), "+f"(c.c[1]), "+f"(c.c[2]), "+f"(c.c[3])
      : "r"(a.a[0]), "r"(a.a[1]), "r"(a.a[2]), "r"(a.a[3]), "r"(b.b[0]), "r"(b.b[1]));
}
TILE_FN void mma_i8(Warp&, const FragmentA& a, const FragmentB& b, FragmentSums& c) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(c.c[0]), "+r"(c.c[1]), "+r"(c.c[2]), "+r"(c.c[3])
      : "r"(a.a[0]), "r"(a.a[1]), "r"(a.a[2]), "r"(a.a[3]), "r"(b.b[0]), "r"(b.b[1]));
}

#else

namespace detail {
inline float half_of(uint32_t pair, int high) {
  return __builtin_bit_cast(float, high != 0 ? pair & 0xffff0000u : pair << 16);
}
}  // namespace detail

/// Computes c += a b with float32 sums, K in order. A tensor core adds the products of one instruction in an order of
/// its own, with at least as many bits.
template <class Half>
inline void multiply_halves(const Half& half_of, const FragmentA& a, const FragmentB& b, FragmentC& c) {
  float left[16][16], right[16][8], sum[16][8];
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int high = 0; high < 2; ++high) {
      for (int i = 0; i < 4; ++i) left[g + 8 * (i % 2)][2 * t + 8 * (i / 2) + high] = half_of(a.a[i].v[lane], high);
      for (int i = 0; i < 2; ++i) right[2 * t + 8 * i + high][g] = half_of(b.b[i].v[lane], high);
    }
    for (int i = 0; i < 4; ++i) sum[g + 8 * (i / 2)][2 * t + i % 2] = c.c[i].v[lane];
  }
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < 16; ++k)
      for (int col = 0; col < 8; ++col) sum[row][col] += left[row][k] * right[k][col];
  for (int lane = 0; lane < kWarpLanes; ++lane)
    for (int i = 0; i < 4; ++i) c.c[i].v[lane] = sum[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2];
}

inline void mma_bf16(Warp&, const FragmentA& a, const FragmentB& b, FragmentC& c) {
  multiply_halves(detail::half_of, a, b, c);
}
/// Computes c += a b with float16 factors.
inline void mma_f16(Warp&, const FragmentA& a, const FragmentB& b, FragmentC& c) {
  const auto half_of = [](uint32_t pair, int high) {
    return f16_to_float(Lanes<uint32_t>(high != 0 ? pair >> 16 : pair & 0xffffu)).v[0];
  };
  multiply_halves(half_of, a, b, c);
}

/// c += a b
inline void mma_i8(Warp&, const FragmentA& a, const FragmentB& b, FragmentSums& c) {
  const auto code = [](uint32_t word, int i) { return static_cast<int32_t>(static_cast<int8_t>(word >> (8 * i))); };
  for (int lane = 0; lane < kWarpLanes; ++lane)
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + 8 * (i / 2), col = 2 * (lane % 4) + i % 2;
      int32_t& sum = c.c[i].v[lane];
      for (int k = 0; k < 32; ++k) {
        const int half = k / 16, t = k % 16 / 4;  // half and quad of K
        sum += code(a.a[row / 8 + 2 * half].v[row % 8 * 4 + t], k % 4) * code(b.b[half].v[col * 4 + t], k % 4);
      }
    }
}

#endif

}  // namespace redline::tiles
