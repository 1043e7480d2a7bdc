#include "backends/host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "base/aligned_buffer.h"

namespace redline {
namespace {

struct Pages {
  AlignedBuffer memory;
  int64_t page_bytes = 0;
  uint8_t* at(int64_t page) { return static_cast<uint8_t*>(memory.data()) + page * page_bytes; }
};

class HostStateMemory final : public StateMemory {
 public:
  explicit HostStateMemory(std::vector<Pages> groups) : groups_(std::move(groups)) {}
  uint8_t* pages(size_t group) override { return groups_[group].at(0); }
  void copy_page(size_t group, int64_t from, int64_t to) override {
    Pages& pages = groups_[group];
    std::memcpy(pages.at(to), pages.at(from), static_cast<size_t>(pages.page_bytes));
  }
  void clear_page(size_t group, int64_t page) override {
    std::memset(groups_[group].at(page), 0, static_cast<size_t>(groups_[group].page_bytes));
  }
  // Only whole pages of the system: partial pages may hold other data.
  void discard_pages(size_t group, int64_t begin, int64_t end) override {
    const auto size = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    uint8_t *const from = groups_[group].at(begin), *const to = groups_[group].at(end);
    uint8_t* const first = from + (size - reinterpret_cast<uintptr_t>(from) % size) % size;
    uint8_t* const last = to - reinterpret_cast<uintptr_t>(to) % size;
    if (first < last) ::madvise(first, static_cast<size_t>(last - first), MADV_DONTNEED);
  }

 private:
  std::vector<Pages> groups_;
};

class HostBuffer final : public BackendBuffer {
 public:
  explicit HostBuffer(AlignedBuffer memory) : memory_(std::move(memory)) {}
  uint8_t* address(bool) override { return host(); }
  uint8_t* host() override { return static_cast<uint8_t*>(memory_.data()); }
  void copy(int64_t to, BackendBuffer& from, int64_t begin, int64_t bytes) override {
    std::memcpy(host() + to, from.host() + begin, static_cast<size_t>(bytes));
  }
  Result<std::unique_ptr<BackendBuffer>> make_like(int64_t bytes) override { return make_host_buffer(bytes); }

 private:
  AlignedBuffer memory_;
};

}  // namespace

Result<std::unique_ptr<BackendBuffer>> make_host_buffer(int64_t bytes) {
  REDLINE_ASSIGN(AlignedBuffer memory, AlignedBuffer::make(bytes));
  return std::unique_ptr<BackendBuffer>(new HostBuffer(std::move(memory)));
}

Result<std::unique_ptr<StateMemory>> make_host_state_memory(const StatePlan& plan, std::span<const int64_t> num_pages) {
  REDLINE_CHECK(num_pages.size() == plan.groups.size());
  std::vector<Pages> groups;
  for (size_t g = 0; g < plan.groups.size(); ++g) {
    auto memory = AlignedBuffer::make(plan.groups[g].page_bytes * num_pages[g]);
    if (!memory.ok()) return std::move(memory).status().within("key-value cache");
    groups.push_back({std::move(memory).value(), plan.groups[g].page_bytes});
  }
  return std::unique_ptr<StateMemory>(new HostStateMemory(std::move(groups)));
}

}  // namespace redline
