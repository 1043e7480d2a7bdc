#include "backends/tiles/device_memory.h"

namespace redline {

Result<DeviceMemory> DeviceMemory::make(std::shared_ptr<OpenDevice> device, int64_t bytes, bool is_constant) {
  void* data = nullptr;
  tiles::TileDevice& table = device->table();
  if (table.allocate(table.self, bytes, is_constant ? 1 : 0, &data) != 0)
    return out_of_memory("{}: {} bytes: {}", table.name, bytes, table.last_error(table.self));
  DeviceMemory memory;
  memory.device_ = std::move(device);
  memory.data_ = static_cast<uint8_t*>(data);
  memory.size_ = bytes;
  return memory;
}

DeviceMemory::~DeviceMemory() {
  if (data_) device_->table().release(device_->table().self, data_);
}

}  // namespace redline
