#include "backends/tiles/device_memory.h"

#include <algorithm>

namespace redline {

Status check_device_memory(OpenDevice& device, int64_t bytes, std::string_view what) {
  REDLINE_ASSIGN(const OpenDevice::Memory memory, device.memory());
  if (bytes <= memory.free - memory.reserve()) return {};
  return out_of_device_memory("{}: {} take {:.2f} GiB; of {:.2f} GiB, {:.2f} are free, of which {:.2f} stay free",
                              device.name(), what, gib(bytes), gib(memory.total), gib(memory.free),
                              gib(memory.reserve()));
}

Result<DeviceMemory> DeviceMemory::make(std::shared_ptr<OpenDevice> device, int64_t bytes, bool is_constant) {
  void* data = nullptr;
  if (const Status status = device->allocate(bytes, is_constant, &data); !status.ok()) {
    const auto memory = device->memory();
    // Then it is not the memory that is missing: the device has failed.
    if (!memory.ok()) return internal("{}: allocating {} bytes failed: {}", device->name(), bytes, status.message());
    return out_of_device_memory("{}: {} bytes do not fit: {} of {} are free ({})", device->name(), bytes, memory->free,
                                memory->total, status.message());
  }
  DeviceMemory memory;
  memory.device_ = std::move(device);
  memory.data_ = static_cast<uint8_t*>(data);
  memory.size_ = bytes;
  return memory;
}

DeviceMemory::~DeviceMemory() {
  if (data_) device_->release(data_);
}

StagedUpload::~StagedUpload() {
  if (buffer_ != nullptr) (void)device_.end_staging();
}

Result<std::span<uint8_t>> StagedUpload::place(int64_t least, int64_t most) {
  constexpr int64_t kAlignment = 256;
  used_ = std::min(size_, (used_ + kAlignment - 1) / kAlignment * kAlignment);
  // A small rest of a buffer would be a small piece of work for all workers.
  const int64_t wanted = std::max(least, std::min(most, size_ / 16));
  if (size_ - used_ < wanted) {
    void* memory = nullptr;
    REDLINE_TRY(device_.stage(total_, &memory, &size_));
    buffer_ = static_cast<uint8_t*>(memory);
    used_ = 0;
  }
  if (size_ < least) return std::span<uint8_t>();
  return std::span(buffer_ + used_, static_cast<size_t>(std::min(most, size_ - used_)));
}

Status StagedUpload::upload(void* to, int64_t bytes) {
  REDLINE_TRY(device_.upload_staged(to, buffer_ + used_, bytes));
  used_ += bytes;
  return {};
}

Status StagedUpload::finish() {
  buffer_ = nullptr;
  size_ = used_ = 0;
  return device_.end_staging();
}

}  // namespace redline
