// Large zeroed memory, allocated on first touch.
#pragma once

#include <cstdint>
#include <utility>

#include "base/error.h"

namespace redline {

/// Zeroed memory aligned to cache lines, or to huge pages when large.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  /// Allocates a buffer. out_of_memory: the message states the requested bytes.
  static Result<AlignedBuffer> make(int64_t bytes);
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept { swap(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  void* data() const { return data_; }
  int64_t size() const { return size_; }
  /// Bytes of resident (touched) memory.
  int64_t resident_bytes() const;

 private:
  void swap(AlignedBuffer& other) {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  void* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace redline
