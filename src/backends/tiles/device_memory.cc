#include "backends/tiles/device_memory.h"

namespace redline {

Result<DeviceMemory> DeviceMemory::make(std::shared_ptr<OpenDevice> device, int64_t bytes, bool is_constant) {
  void* data = nullptr;
  if (const Status status = device->allocate(bytes, is_constant, &data); !status.ok())
    return out_of_memory("{}: {} bytes: {}", device->name(), bytes, status.message());
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
