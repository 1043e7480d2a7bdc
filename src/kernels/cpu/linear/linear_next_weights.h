// Prefetches the weights that are multiplied next into L2: a few cache lines with each tile of rows.
#pragma once

#include "kernels/cpu/simd_row_panel.h"

namespace redline::REDLINE_ISA_NS {

/// The position of a chunk of weights: its first column, and its start in K, in units of the kernel.
struct ChunkPlace {
  int64_t n, k;
};
/// Returns the chunk that follows `at` if all columns of a group are multiplied by `chunk` of K before its next chunk:
/// the next columns of the group [begin, end), its first columns further in K, or the first ones of the next group.
REDLINE_INLINE ChunkPlace chunk_after(ChunkPlace at, int64_t columns, int64_t begin, int64_t end, int64_t chunk,
                                      int64_t k_end) {
  if (at.n + columns < end) return {at.n + columns, at.k};
  if (at.k + chunk < k_end) return {begin, at.k + chunk};
  return {end, 0};
}

/// A prefetcher of weights, which would otherwise wait for memory where they are needed.
class NextWeights {
 public:
  /// Prefetches `bytes` of each of `row_panels` row panels, spread over `tiles` calls of prefetch().
  REDLINE_INLINE NextWeights(const void* first, int64_t row_panel_bytes, int64_t row_panels, int64_t bytes,
                             int64_t tiles)
      : at_(static_cast<const char*>(first)), end_(at_ + bytes), to_next_(row_panel_bytes - bytes), bytes_(bytes),
        row_panels_(row_panels), lines_((row_panels * ((bytes + 63) / 64) + tiles - 1) / tiles) {}
  REDLINE_INLINE void prefetch() {
    for (int64_t line = 0; line < lines_ && row_panels_ > 0; ++line) {
      __builtin_prefetch(at_, 0, 2);
      at_ += 64;
      if (at_ < end_) continue;
      at_ = end_ + to_next_;
      end_ = at_ + bytes_;
      --row_panels_;
    }
  }

 private:
  const char *at_, *end_;
  int64_t to_next_, bytes_, row_panels_, lines_;
};

}  // namespace redline::REDLINE_ISA_NS
