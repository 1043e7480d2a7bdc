// Allocates slot numbers, lowest first: the pages of a state pool.
//
// The data structure is a tree of bitmaps with 64-bit words. A set bit on the lowest level is a free slot. A set bit on
// a higher level stands for a word of the level below it that has a set bit. Finding the lowest free slot takes one
// count-trailing-zeros per level; 3 levels hold 262144 slots.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "base/error.h"

namespace redline {

/// Allocates the numbers 0 .. capacity - 1. All memory is allocated at construction; each call costs O(log64 capacity).
/// Not thread-safe.
class SlabAllocator {
 public:
  explicit SlabAllocator(int64_t capacity);

  /// Returns the lowest free slot, or nullopt when none is left.
  std::optional<int64_t> allocate();
  /// Frees a slot, which must be allocated: a double free aborts, before two owners can share the slot.
  void free(int64_t slot);

  bool is_allocated(int64_t slot) const;
  int64_t capacity() const { return capacity_; }
  int64_t num_free() const { return num_free_; }

 private:
  uint64_t& word(int level, int64_t index) { return words_[static_cast<size_t>(level_begin_[level] + index)]; }
  void take(int64_t slot);

  static constexpr int kMaxLevels = 11;  // 64^11 > 2^63
  int64_t capacity_, num_free_;
  int num_levels_ = 0;
  std::array<int64_t, kMaxLevels> level_begin_ = {};  // level 0 has one bit per slot, the last level is one word
  std::vector<uint64_t> words_;
};

}  // namespace redline
