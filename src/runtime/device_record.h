// Measurements of a GPU in a file of the cache folder: up to how many rows Redline's own kernels are used instead of
// the library.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"

namespace redline {

struct DeviceRecord {
  /// "NVIDIA H200", "cuBLASLt 13.0.2": the GPU and library that own_rows was measured with.
  std::string model, library;
  int64_t own_rows = 0;  ///< value for OpenDevice::set_own_rows()
};

/// Reads the record of a GPU and library. `folder`: the cache folder (base/cache_folder.h); "": there is none. nullopt:
/// no record, or the file cannot be read.
std::optional<DeviceRecord> read_device_record(const std::string& folder, const std::string& model,
                                               const std::string& library);
/// Replaces the record of the same GPU and library. Returns the path of the file. unsupported: no folder. io: the file
/// cannot be written.
Result<std::string> write_device_record(const std::string& folder, const DeviceRecord& record);

}  // namespace redline
