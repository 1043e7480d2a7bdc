// Replaces operator new and delete of the whole test program, to count. Include in one source only.
#pragma once

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "support/heap_meter.h"

namespace redline::heap_meter {
inline std::atomic<int64_t> held{0}, peak{0};

inline void* try_take(std::size_t bytes) {
  void* block = std::malloc(bytes == 0 ? 1 : bytes);
  if (block == nullptr) return nullptr;
  const int64_t now = held += static_cast<int64_t>(malloc_usable_size(block));
  for (int64_t most = peak; now > most && !peak.compare_exchange_weak(most, now);) {}
  return block;
}
inline void* take(std::size_t bytes) {
  void* block = try_take(bytes);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}
inline void give(void* block) {
  if (block != nullptr) held -= static_cast<int64_t>(malloc_usable_size(block));
  std::free(block);
}
}  // namespace redline::heap_meter

void* operator new(std::size_t bytes) { return redline::heap_meter::take(bytes); }
void* operator new[](std::size_t bytes) { return redline::heap_meter::take(bytes); }
// A sanitizer's runtime has its own of these (std::stable_sort asks so), which the deletes below could not take back.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return redline::heap_meter::try_take(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return redline::heap_meter::try_take(bytes); }
void operator delete(void* block) noexcept { redline::heap_meter::give(block); }
void operator delete[](void* block) noexcept { redline::heap_meter::give(block); }
void operator delete(void* block, std::size_t) noexcept { redline::heap_meter::give(block); }
void operator delete[](void* block, std::size_t) noexcept { redline::heap_meter::give(block); }

namespace redline {
HeapMeter::HeapMeter() : before_(heap_meter::held) { heap_meter::peak = before_; }
int64_t HeapMeter::peak_growth() const { return heap_meter::peak - before_; }
}  // namespace redline
