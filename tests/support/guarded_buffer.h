// Memory that ends at an unmapped page: reading or writing past the end stops the test at the very access.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

namespace redline::testing {

template <class T>
class GuardedBuffer {
 public:
  explicit GuardedBuffer(int64_t count) : count_(count) {
    const int64_t page = sysconf(_SC_PAGESIZE);
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    mapped_ = (bytes + page - 1) / page * page + page;
    base_ = static_cast<uint8_t*>(
        mmap(nullptr, static_cast<size_t>(mapped_), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + mapped_ - page, static_cast<size_t>(page), PROT_NONE);
    data_ = reinterpret_cast<T*>(base_ + mapped_ - page - bytes);
  }
  ~GuardedBuffer() { munmap(base_, static_cast<size_t>(mapped_)); }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  T* data() { return data_; }
  const T* data() const { return data_; }
  int64_t size() const { return count_; }
  T& operator[](int64_t i) { return data_[i]; }
  const T& operator[](int64_t i) const { return data_[i]; }

 private:
  uint8_t* base_;
  T* data_;
  int64_t count_, mapped_;
};

}  // namespace redline::testing
