// Matrices in shared memory whose rows are read by adjacent lanes: an XOR stage after the row-major address spreads
// them over the banks.
#pragma once

#include "kernels/tiles/warp.h"

namespace redline::tiles {

/// XORs bits [S, S + B) of (address >> M) into its bits [0, B): the swizzle stage of the layouts of Axe (arXiv
/// 2601.19092) and CuTe, in bytes.
template <int M, int B, int S>
TILE_FN Lanes<uint32_t> swizzled(const Lanes<uint32_t>& address) {
  static_assert(S >= B, "the bits that are read must not be changed");
  constexpr uint32_t kMask = (uint32_t{1} << B) - 1;
  return address ^ (((address >> uint32_t{M + S}) & kMask) << uint32_t{M});
}

/// A tile of kRows x kCols elements of kElementBytes; kCols * kElementBytes is a power of two of at least 128. Units of
/// 32 bytes, which the four lanes of a fragment's row read together, are permuted within 128 bytes by the row, so that
/// the rows of half a warp are in different banks.
template <int kRows, int kCols, int kElementBytes>
struct SharedTile {
  static constexpr int kRowBytes = kCols * kElementBytes, kBytes = kRows * kRowBytes;
  static_assert((kRowBytes & (kRowBytes - 1)) == 0 && kRowBytes >= 128);
  static TILE_CONST_FN int log2_of(int n) { return n <= 1 ? 0 : 1 + log2_of(n / 2); }
  static constexpr int kUnitBits = 5, kRowBits = log2_of(kRowBytes);

  uint32_t base = 0;  ///< offset in shared memory, a multiple of 1024

  TILE_FN Lanes<uint32_t> at(const Lanes<int>& row, const Lanes<int>& col) const {
    return swizzled<kUnitBits, 2, kRowBits - kUnitBits>(convert<uint32_t>(row * kRowBytes + col * kElementBytes)) +
           base;
  }
};

}  // namespace redline::tiles
