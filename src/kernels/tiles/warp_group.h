// Products of a warp group (sm_90a): four adjacent warps multiply 64 rows of A, 16 in the registers of each, with 64
// rows of B in shared memory, asynchronously (wgmma.mma_async.m64n64k16). The registers of a warp have the order of
// fragment.h: A as of one m16n8k16, C as of eight. With int8, m64n64k32: A as of m16n8k32.
#pragma once

#include "kernels/tiles/fragment.h"
#include "kernels/tiles/matrix_descriptor.h"

namespace redline::tiles {

inline constexpr int kGroupWarps = 4, kGroupCols = 64;
/// The C operand of a warp group with bfloat16 factors: the 64 columns of this warp's 16 rows.
struct GroupC {
  FragmentC tiles[kGroupCols / 8];
};
/// The C operand with int8 factors.
struct GroupSums {
  FragmentSums tiles[kGroupCols / 8];
};

#ifdef __CUDACC__

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define REDLINE_HAS_WARP_GROUPS 1
#else
#define REDLINE_HAS_WARP_GROUPS 0
#endif

#if REDLINE_HAS_WARP_GROUPS
namespace detail {
#define REDLINE_C(i) "+f"(t[i].c[0]), "+f"(t[i].c[1]), "+f"(t[i].c[2]), "+f"(t[i].c[3])
#define REDLINE_ALL_C \
  REDLINE_C(0), REDLINE_C(1), REDLINE_C(2), REDLINE_C(3), REDLINE_C(4), REDLINE_C(5), REDLINE_C(6), REDLINE_C(7)
template <bool kAccumulate>
TILE_FN void issue_product(const FragmentA& a, uint64_t b, GroupC& c) {
  auto& t = c.tiles;
  asm volatile(
      "{\n"
      ".reg .pred keep;\n"
      "setp.ne.u32 keep, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
      "{%32,%33,%34,%35}, %36, keep, 1, 1, 0;\n"
      "}\n"
      : REDLINE_ALL_C
      : "r"(a.a[0]), "r"(a.a[1]), "r"(a.a[2]), "r"(a.a[3]), "l"(b), "n"(kAccumulate ? 1 : 0)
      : "memory");
}
#define REDLINE_S(i) "+r"(t[i].c[0]), "+r"(t[i].c[1]), "+r"(t[i].c[2]), "+r"(t[i].c[3])
#define REDLINE_ALL_S \
  REDLINE_S(0), REDLINE_S(1), REDLINE_S(2), REDLINE_S(3), REDLINE_S(4), REDLINE_S(5), REDLINE_S(6), REDLINE_S(7)
template <bool kAccumulate>
TILE_FN void issue_product(const FragmentA& a, uint64_t b, GroupSums& c) {
  auto& t = c.tiles;
  asm volatile(
      "{\n"
      ".reg .pred keep;\n"
      "setp.ne.u32 keep, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
      "{%32,%33,%34,%35}, %36, keep;\n"
      "}\n"
      : REDLINE_ALL_S
      : "r"(a.a[0]), "r"(a.a[1]), "r"(a.a[2]), "r"(a.a[3]), "l"(b), "n"(kAccumulate ? 1 : 0)
      : "memory");
}
TILE_FN void begin_products(GroupC& c) {
  auto& t = c.tiles;
  asm volatile("wgmma.fence.sync.aligned;" : REDLINE_ALL_C::"memory");
}
TILE_FN void begin_products(GroupSums& c) {
  auto& t = c.tiles;
  asm volatile("wgmma.fence.sync.aligned;" : REDLINE_ALL_S::"memory");
}
TILE_FN void wait_for_products(GroupC& c) {
  auto& t = c.tiles;
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" : REDLINE_ALL_C::"memory");
}
TILE_FN void wait_for_products(GroupSums& c) {
  auto& t = c.tiles;
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" : REDLINE_ALL_S::"memory");
}
#undef REDLINE_ALL_C
#undef REDLINE_C
#undef REDLINE_ALL_S
#undef REDLINE_S
}  // namespace detail
#endif

/// Computes c = sum of a[i] b[i], or c += that sum. All four warps must call it with the same descriptors, after
/// publishing their stores to shared memory (Warp::publish_shared). C is GroupC for bfloat16, GroupSums for int8.
template <bool kAccumulate, int kCount, class C>
TILE_FN void group_multiply(Warp&, FragmentA (&a)[kCount], const uint64_t (&b)[kCount], C& c) {
#if REDLINE_HAS_WARP_GROUPS
  // The registers must have their values before the fence. If a compiler moved one after it, it would insert a fence of
  // its own, and the products would run one after the other.
  TILE_UNROLL
  for (int i = 0; i < kCount; ++i)
    asm volatile("" : "+r"(a[i].a[0]), "+r"(a[i].a[1]), "+r"(a[i].a[2]), "+r"(a[i].a[3])::"memory");
  detail::begin_products(c);
  detail::issue_product<kAccumulate>(a[0], b[0], c);
  TILE_UNROLL
  for (int i = 1; i < kCount; ++i) detail::issue_product<true>(a[i], b[i], c);
  detail::wait_for_products(c);
#endif
}

#else

template <bool kAccumulate, int kCount, class C>
inline void group_multiply(Warp& w, FragmentA (&a)[kCount], const uint64_t (&b)[kCount], C& c) {
  std::remove_reference_t<decltype(c.tiles[0].c[0])>* registers[kGroupCols / 2];
  for (int i = 0; i < kGroupCols / 2; ++i) registers[i] = &c.tiles[i / 4].c[i % 4];
  for (int i = 0; i < kCount; ++i) w.group_multiply(a[i].a, b[i], registers, kAccumulate || i > 0);
  w.group_wait();
}

#endif

}  // namespace redline::tiles
