#include "backends/tiles/device_memory.h"

#include <algorithm>

namespace redline {

Status check_device_memory(OpenDevice& device, int64_t bytes, std::string_view what) {
  REDLINE_ASSIGN(const OpenDevice::Memory memory, device.memory());
  if (bytes <= memory.free - memory.reserve()) return {};
  return out_of_memory("{}: {} take {:.2f} GiB; of {:.2f} GiB, {:.2f} are free, of which {:.2f} stay free",
                       device.name(), what, gib(bytes), gib(memory.total), gib(memory.free), gib(memory.reserve()));
}

Result<DeviceMemory> DeviceMemory::make(std::shared_ptr<OpenDevice> device, int64_t bytes, bool is_constant) {
  void* data = nullptr;
  if (const Status status = device->allocate(bytes, is_constant, &data); !status.ok()) {
    const auto memory = device->memory();
    // Then it is not the memory that is missing: the device has failed.
    if (!memory.ok()) return internal("{}: {} bytes: {}", device->name(), bytes, status.message());
    return out_of_memory("{}: {} bytes do not fit: {} of {} are free ({})", device->name(), bytes, memory->free,
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

}  // namespace redline
