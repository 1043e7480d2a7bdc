// The 64-bit descriptor by which wgmma finds an operand in shared memory (PTX ISA 9.7.15.5.1.2.2), for operands whose
// rows are contiguous along K. An atom is 8 rows of 16, 32, 64 or 128 bytes, whose units of 16 bytes are permuted by
// the row.
#pragma once

#include "kernels/tiles/lanes.h"

namespace redline::tiles {

/// Number of bytes of a row of an atom.
enum class MatrixSwizzle : uint8_t { k16, k128, k64, k32 };  ///< values are in the order of the field; k16: no swizzle

struct MatrixDescriptor {
  uint32_t begin = 0;       ///< address in shared memory
  uint32_t k_stride = 16;   ///< bytes from atom to atom along K; read only without a swizzle
  uint32_t row_stride = 0;  ///< bytes from one group of 8 rows to the next
  MatrixSwizzle swizzle = MatrixSwizzle::k128;

  TILE_CONST_FN uint64_t encode() const {
    return uint64_t{(begin & 0x3ffffu) >> 4} | uint64_t{(k_stride & 0x3ffffu) >> 4} << 16 |
           uint64_t{(row_stride & 0x3ffffu) >> 4} << 32 | uint64_t{static_cast<uint8_t>(swizzle)} << 62;
  }
};

}  // namespace redline::tiles
