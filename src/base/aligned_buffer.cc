#include "base/aligned_buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace redline {

Result<AlignedBuffer> AlignedBuffer::make(int64_t bytes) {
  AlignedBuffer buffer;
  if (bytes <= 0) return buffer;
  constexpr int64_t kHugePage = 2 << 20;
  // Anonymous memory is zeroed and allocated on first touch. Large buffers start on a huge page; the part before it is
  // unmapped.
  const int64_t spare = bytes >= kHugePage ? kHugePage : 0;
  void* data = mmap(nullptr, static_cast<size_t>(bytes + spare), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return out_of_memory("{} bytes cannot be allocated", bytes);
  if (spare > 0) {
    const int64_t page = sysconf(_SC_PAGESIZE), mapped = (bytes + page - 1) / page * page;
    const int64_t head = -static_cast<int64_t>(reinterpret_cast<uintptr_t>(data)) & (kHugePage - 1);
    auto* begin = static_cast<uint8_t*>(data) + head;
    if (head > 0) munmap(data, static_cast<size_t>(head));
    if (const int64_t tail = bytes + spare - head - mapped; tail > 0) munmap(begin + mapped, static_cast<size_t>(tail));
    data = begin;
    madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  }
  buffer.data_ = data;
  buffer.size_ = bytes;
  return buffer;
}

int64_t AlignedBuffer::resident_bytes() const {
  const int64_t page = sysconf(_SC_PAGESIZE), pages = (size_ + page - 1) / page;
  std::vector<unsigned char> resident(static_cast<size_t>(pages));
  if (pages == 0 || mincore(data_, static_cast<size_t>(size_), resident.data()) != 0) return 0;
  return page * std::count_if(resident.begin(), resident.end(), [](unsigned char flags) { return (flags & 1) != 0; });
}

AlignedBuffer::~AlignedBuffer() {
  if (data_) munmap(data_, static_cast<size_t>(size_));
}

}  // namespace redline
