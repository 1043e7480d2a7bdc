// What was measured of a GPU, in a file of the cache folder: which of its products are those of its library.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"

namespace redline {

struct DeviceRecord {
  std::string model, library;  ///< "NVIDIA H200", "cuBLASLt 13.0.2": what the number depends on
  int64_t own_rows = 0;        ///< OpenDevice::own_rows()
};

/// nullopt: nothing is recorded of this GPU with this library, or the file cannot be read. `folder`: of the cache
/// (base/cache_folder.h); "": there is none.
std::optional<DeviceRecord> read_device_record(const std::string& folder, const std::string& model,
                                               const std::string& library);
/// Replaces what is recorded of the same GPU and library. Returns the path of the file. unsupported: no folder. io.
Result<std::string> write_device_record(const std::string& folder, const DeviceRecord& record);

}  // namespace redline
