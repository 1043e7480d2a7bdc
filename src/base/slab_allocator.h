// Fixed-size slots, allocated lowest first: KV pages by number, or objects of one type.
//
// A tree of 64-wide bitmaps: a set bit on the lowest level is a free slot; above, a set bit is a word below that has a
// free slot. Finding the lowest free slot is one count-trailing-zeros per level; 3 levels hold 262144 slots.
#pragma once

#include <array>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"

namespace redline {

/// The numbers 0 .. capacity - 1. All memory is allocated at construction; each call costs O(log64 capacity). Not
/// thread-safe.
class SlabAllocator {
 public:
  explicit SlabAllocator(int64_t capacity);

  /// The lowest free slot; nullopt when none is left.
  std::optional<int64_t> allocate();
  /// Allocates this slot; false when it is already allocated.
  bool allocate_at(int64_t slot);
  /// `slot` must be allocated: a double free aborts, before two owners can share the slot.
  void free(int64_t slot);

  bool is_allocated(int64_t slot) const;
  int64_t capacity() const { return capacity_; }
  int64_t num_free() const { return num_free_; }
  int64_t num_allocated() const { return capacity_ - num_free_; }

 private:
  uint64_t& word(int level, int64_t index) { return words_[static_cast<size_t>(level_begin_[level] + index)]; }
  void take(int64_t slot);

  static constexpr int kMaxLevels = 11;  // 64^11 > 2^63
  int64_t capacity_, num_free_;
  int num_levels_ = 0;
  std::array<int64_t, kMaxLevels> level_begin_ = {};  // level 0 has one bit per slot, the last level is one word
  std::vector<uint64_t> words_;
};

/// Room for `capacity` objects of T at fixed addresses.
template <class T>
class ObjectSlab {
 public:
  explicit ObjectSlab(int64_t capacity) : slots_(capacity), storage_(new Storage[static_cast<size_t>(capacity)]) {}
  ObjectSlab(const ObjectSlab&) = delete;
  ObjectSlab& operator=(const ObjectSlab&) = delete;
  ~ObjectSlab() {
    for (int64_t slot = 0; slot < slots_.capacity(); ++slot)
      if (slots_.is_allocated(slot)) at(slot)->~T();
  }

  /// nullptr when the slab is full.
  template <class... A>
  T* create(A&&... args) {
    const std::optional<int64_t> slot = slots_.allocate();
    return slot ? new (&storage_[*slot]) T(std::forward<A>(args)...) : nullptr;
  }
  /// `object` must come from create() of this slab.
  void destroy(T* object) {
    const auto* place = reinterpret_cast<const Storage*>(object);
    slots_.free(place - storage_.get());
    object->~T();
  }
  const SlabAllocator& slots() const { return slots_; }

 private:
  struct alignas(T) Storage {
    std::byte bytes[sizeof(T)];
  };
  T* at(int64_t slot) { return std::launder(reinterpret_cast<T*>(&storage_[slot])); }

  SlabAllocator slots_;
  std::unique_ptr<Storage[]> storage_;
};

}  // namespace redline
