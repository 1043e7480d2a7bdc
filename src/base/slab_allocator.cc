#include "base/slab_allocator.h"

#include <bit>

namespace redline {
namespace {

constexpr int64_t kFanout = 64;

uint64_t bit(int64_t index) { return uint64_t{1} << (index % kFanout); }

}  // namespace

SlabAllocator::SlabAllocator(int64_t capacity) : capacity_(capacity), num_free_(capacity) {
  REDLINE_CHECK(capacity >= 0);
  for (int64_t bits = capacity; bits > 0;) {
    const int64_t num_words = (bits + kFanout - 1) / kFanout;
    level_begin_[num_levels_++] = static_cast<int64_t>(words_.size());
    words_.insert(words_.end(), static_cast<size_t>(num_words), ~uint64_t{0});
    if (bits % kFanout != 0) words_.back() = bit(bits) - 1;
    bits = num_words == 1 ? 0 : num_words;
  }
}

std::optional<int64_t> SlabAllocator::allocate() {
  if (num_free_ == 0) return std::nullopt;
  int64_t index = 0;
  for (int level = num_levels_; level-- > 0;) index = index * kFanout + std::countr_zero(word(level, index));
  take(index);
  return index;
}

void SlabAllocator::take(int64_t slot) {
  --num_free_;
  for (int level = 0; level < num_levels_; ++level) {
    uint64_t& bits = word(level, slot / kFanout);
    bits &= ~bit(slot);
    if (bits != 0) return;
    slot /= kFanout;
  }
}

void SlabAllocator::free(int64_t slot) {
  REDLINE_CHECK(is_allocated(slot));
  ++num_free_;
  for (int level = 0; level < num_levels_; ++level) {
    uint64_t& bits = word(level, slot / kFanout);
    const bool had_free = bits != 0;
    bits |= bit(slot);
    if (had_free) return;
    slot /= kFanout;
  }
}

bool SlabAllocator::is_allocated(int64_t slot) const {
  REDLINE_CHECK(slot >= 0 && slot < capacity_);
  return (words_[static_cast<size_t>(slot / kFanout)] & bit(slot)) == 0;
}

}  // namespace redline
