// The head of a packed panel block, stored before its codes: the scales of the 16 rows side by side, so that one load
// and one conversion give a vector of 16. value = scale * code - min, with scale and min rounded to float32 exactly as
// in the format's unpack_i8.
//
// Every head has kBytes; scale(head, g, part) and min(head, g, part) of group g; pack(block, row, head) for one row.
// If a block has one float32 for all of its scales, scale() is unit(head, part) times the integer factor(head, g,
// part), and min() is min_unit() times the integer min_factor().
#pragma once

#include "tensor/blocks/lanes.h"

namespace redline::blocks {

REDLINE_BLOCK_INLINE void put_u16(uint8_t* head, int row, const uint8_t* from) {
  head[2 * row] = from[0];
  head[2 * row + 1] = from[1];
}

/// A head with one half for the whole block, at byte kAt.
template <int kAt>
struct HalfHead {
  static constexpr int kBytes = 32;
  REDLINE_BLOCK_INLINE Floats scale(const uint8_t* head, int, int part) { return halves_part(head, part); }
  REDLINE_BLOCK_INLINE Floats min(const uint8_t*, int, int) { return Floats{}; }
  REDLINE_BLOCK_INLINE void pack(const uint8_t* block, int row, uint8_t* head) { put_u16(head, row, block + kAt); }
};

/// A head with f16 d and f16 m at the start of the block; value = d q + m.
struct HalfPairHead {
  static constexpr int kBytes = 64;
  REDLINE_BLOCK_INLINE Floats scale(const uint8_t* head, int, int part) { return halves_part(head, part); }
  REDLINE_BLOCK_INLINE Floats min(const uint8_t* head, int, int part) { return -halves_part(head + 32, part); }
  REDLINE_BLOCK_INLINE void pack(const uint8_t* block, int row, uint8_t* head) {
    put_u16(head, row, block);
    put_u16(head + 32, row, block + 2);
  }
};

/// A head with one exponent byte: MXFP4.
struct ExponentHead {
  static constexpr int kBytes = 16;
  REDLINE_BLOCK_INLINE Floats scale(const uint8_t* head, int, int part) { return exponents_part(head, part); }
  REDLINE_BLOCK_INLINE Floats min(const uint8_t*, int, int) { return Floats{}; }
  REDLINE_BLOCK_INLINE void pack(const uint8_t* block, int row, uint8_t* head) { head[row] = block[0]; }
};

/// A head with f16 d times an int8 per group, read by Format::sub_scale(block, g).
template <class Format, int kHalfAt>
struct SubScaleHead {
  static constexpr int kGroups = Format::kElements / Format::kGroup;
  static constexpr int kBytes = 32 + 16 * kGroups;
  REDLINE_BLOCK_INLINE Floats unit(const uint8_t* head, int part) { return halves_part(head, part); }
  REDLINE_BLOCK_INLINE Ints factor(const uint8_t* head, int g, int part) { return i8_ints(head + 32 + 16 * g, part); }
  REDLINE_BLOCK_INLINE Floats scale(const uint8_t* head, int g, int part) {
    return unit(head, part) * ints_to_floats(factor(head, g, part));
  }
  REDLINE_BLOCK_INLINE Floats min(const uint8_t*, int, int) { return Floats{}; }
  REDLINE_BLOCK_INLINE void pack(const uint8_t* block, int row, uint8_t* head) {
    put_u16(head, row, block + kHalfAt);
    for (int g = 0; g < kGroups; ++g) head[32 + 16 * g + row] = static_cast<uint8_t>(Format::sub_scale(block, g));
  }
};

/// A head with f16 d, f16 dmin, and one byte each for the scale and min of 8 groups: Q4_K, Q5_K. Uses
/// Format::sub_scale, sub_min.
template <class Format>
struct ScaleMinHead {
  static constexpr int kGroups = Format::kElements / Format::kGroup;
  static constexpr int kBytes = 64 + 32 * kGroups;
  REDLINE_BLOCK_INLINE Floats unit(const uint8_t* head, int part) { return halves_part(head, part); }
  REDLINE_BLOCK_INLINE Floats min_unit(const uint8_t* head, int part) { return halves_part(head + 32, part); }
  REDLINE_BLOCK_INLINE Ints factor(const uint8_t* head, int g, int part) {
    return u8_ints<0, 255>(head + 64 + 32 * g, part);
  }
  REDLINE_BLOCK_INLINE Ints min_factor(const uint8_t* head, int g, int part) {
    return u8_ints<0, 255>(head + 80 + 32 * g, part);
  }
  REDLINE_BLOCK_INLINE Floats scale(const uint8_t* head, int g, int part) {
    return unit(head, part) * ints_to_floats(factor(head, g, part));
  }
  REDLINE_BLOCK_INLINE Floats min(const uint8_t* head, int g, int part) {
    return min_unit(head, part) * ints_to_floats(min_factor(head, g, part));
  }
  REDLINE_BLOCK_INLINE void pack(const uint8_t* block, int row, uint8_t* head) {
    put_u16(head, row, block);
    put_u16(head + 32, row, block + 2);
    for (int g = 0; g < kGroups; ++g) {
      head[64 + 32 * g + row] = Format::sub_scale(block, g);
      head[80 + 32 * g + row] = Format::sub_min(block, g);
    }
  }
};

/// A head with f16 d, f16 dmin at byte kHalfAt; at the start one byte per group with both 4-bit factors, 16 groups:
/// Q2_K.
template <int kHalfAt>
struct NibbleScaleMinHead {
  static constexpr int kGroups = 16, kBytes = 64 + 16 * kGroups;
  REDLINE_BLOCK_INLINE Floats unit(const uint8_t* head, int part) { return halves_part(head, part); }
  REDLINE_BLOCK_INLINE Floats min_unit(const uint8_t* head, int part) { return halves_part(head + 32, part); }
  REDLINE_BLOCK_INLINE Ints factor(const uint8_t* head, int g, int part) {
    return u8_ints<0, 15>(head + 64 + 16 * g, part);
  }
  REDLINE_BLOCK_INLINE Ints min_factor(const uint8_t* head, int g, int part) {
    return u8_ints<4, 15>(head + 64 + 16 * g, part);
  }
  REDLINE_BLOCK_INLINE Floats scale(const uint8_t* head, int g, int part) {
    return unit(head, part) * ints_to_floats(factor(head, g, part));
  }
  REDLINE_BLOCK_INLINE Floats min(const uint8_t* head, int g, int part) {
    return min_unit(head, part) * ints_to_floats(min_factor(head, g, part));
  }
  REDLINE_BLOCK_INLINE void pack(const uint8_t* block, int row, uint8_t* head) {
    put_u16(head, row, block + kHalfAt);
    put_u16(head + 32, row, block + kHalfAt + 2);
    for (int g = 0; g < kGroups; ++g) head[64 + 16 * g + row] = block[g];
  }
};

}  // namespace redline::blocks
