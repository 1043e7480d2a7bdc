// Stores of a block to global memory that other blocks cannot see yet.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

namespace redline::emu {

/// A log of stores. A device makes stores visible to other blocks only after a release, so the log holds them until
/// then, and a missing release shows. A block's own reads see its stores.
class StoreLog {
 public:
  template <class T>
  void write(T* to, T value) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
    const auto address = reinterpret_cast<uintptr_t>(to);
    for (size_t i = 0; i < sizeof(T);) {
      Word& word = find((address + i) / kWordBytes);
      const size_t at = (address + i) % kWordBytes, n = std::min(kWordBytes - at, sizeof(T) - i);
      std::memcpy(word.bytes + at, bytes + i, n);
      word.written |= static_cast<uint8_t>(((1u << n) - 1) << at);
      i += n;
    }
    lowest_ = std::min(lowest_, address);
    highest_ = std::max(highest_, address + sizeof(T));
  }
  template <class T>
  T read(const T* from) const {
    const auto address = reinterpret_cast<uintptr_t>(from);
    if (address + sizeof(T) <= lowest_ || address >= highest_) return *from;
    return read_logged(from);
  }
  bool empty() const { return used_.empty(); }
  /// Makes all stores visible.
  void flush() {
    for (const uint32_t slot : used_) {
      const Word& word = table_[slot];
      // Words are found by their address. Conversion to a pointer hinders alias analysis, which does not matter in a
      // small log.
      auto* to = reinterpret_cast<uint8_t*>(word.number * kWordBytes);  // NOLINT(performance-no-int-to-ptr)
      for (size_t i = 0; i < kWordBytes; ++i)
        if (word.written >> i & 1) to[i] = word.bytes[i];
    }
    clear();
  }
  void clear() {
    for (const uint32_t slot : used_) table_[slot].written = 0;
    used_.clear();
    lowest_ = UINTPTR_MAX;
    highest_ = 0;
  }
  /// Calls fn(first address, bytes) for every word that holds stores.
  template <class F>
  void each(F fn) const {
    for (const uint32_t slot : used_) fn(table_[slot].number * kWordBytes, kWordBytes);
  }

 private:
  static constexpr size_t kWordBytes = 8;
  struct Word {
    uintptr_t number = 0;
    uint8_t written = 0;  ///< a bit per byte; 0: the slot is free
    uint8_t bytes[kWordBytes] = {};
  };
  size_t place(uintptr_t number) const { return (number * 0x9e3779b97f4a7c15u >> 20) & (table_.size() - 1); }
  Word& find(uintptr_t number) {
    if (2 * (used_.size() + 1) > table_.size()) grow();
    for (size_t slot = place(number);; slot = (slot + 1) & (table_.size() - 1)) {
      Word& word = table_[slot];
      if (word.written != 0 && word.number != number) continue;
      if (word.written == 0) {
        word.number = number;
        used_.push_back(static_cast<uint32_t>(slot));
      }
      return word;
    }
  }
  const Word* look(uintptr_t number) const {
    for (size_t slot = place(number); table_[slot].written != 0; slot = (slot + 1) & (table_.size() - 1))
      if (table_[slot].number == number) return &table_[slot];
    return nullptr;
  }
  template <class T>
  T read_logged(const T* from) const {
    T value = *from;
    auto* bytes = reinterpret_cast<uint8_t*>(&value);
    const auto address = reinterpret_cast<uintptr_t>(from);
    for (size_t i = 0; i < sizeof(T); ++i)
      if (const Word* word = look((address + i) / kWordBytes))
        if (word->written >> ((address + i) % kWordBytes) & 1) bytes[i] = word->bytes[(address + i) % kWordBytes];
    return value;
  }
  void grow() {
    std::vector<Word> before = std::move(table_);
    std::vector<uint32_t> used = std::move(used_);
    table_.assign(std::max<size_t>(1024, 2 * before.size()), {});
    used_.clear();
    for (const uint32_t slot : used) find(before[slot].number) = before[slot];
  }

  std::vector<Word> table_;  ///< open addressing, a power of two
  std::vector<uint32_t> used_;
  uintptr_t lowest_ = UINTPTR_MAX, highest_ = 0;
};

}  // namespace redline::emu
