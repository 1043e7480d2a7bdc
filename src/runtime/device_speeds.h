// What a tile device does at most, and from how many rows its library is faster than Redline's own kernels.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/worker_team.h"
#include "runtime/device.h"

namespace redline {

struct DeviceSpeeds {
  std::string name, model, library;  ///< library "": none
  int multiprocessors = 0;
  int64_t free_bytes = 0, total_bytes = 0;
  /// Two tensors that are compared; a copy, of which reads and writes count; weights from memory of the host that is
  /// not pinned; results to it.
  double read_bytes_per_s = 0, copy_bytes_per_s = 0, upload_bytes_per_s = 0, download_bytes_per_s = 0;
  double launch_seconds = 0;  ///< of a kernel that has nothing to do, of many one after the other
  double step_seconds = 0;    ///< of a step with such a kernel: upload, launch, wait, download
  /// y = x + x w^T, all numbers random, w [size, size] in bfloat16.
  struct Product {
    int64_t rows = 0, size = 0;
    double own_seconds = 0;
    std::optional<double> library_seconds;
    double flops() const { return 2.0 * static_cast<double>(rows) * static_cast<double>(size * size); }
  };
  std::vector<Product> products;
  /// Products of large square matrices, all numbers random: "bf16", "e4m3" and "int8".
  struct Peak {
    std::string type;
    std::string by;               ///< "cuBLASLt 13.0.2", "own kernels"; "": there is none
    double operations_per_s = 0;  ///< multiplications and additions
    std::string reason;           ///< why there is none
  };
  std::vector<Peak> peaks;
  /// Products of more rows are faster by the library; nullopt: there is none.
  std::optional<int64_t> own_rows;
};

/// `on_part`: false stops it (cancelled). An emulated device is measured with small tensors.
Result<DeviceSpeeds> measure_device_speeds(const std::shared_ptr<OpenDevice>& device, WorkerTeam& team,
                                           const std::function<bool()>& on_part = {});

/// The largest number of rows with an own kernel that is as fast as the library's, or 0. The products are in the order
/// of their rows, and all have a time of the library.
int64_t choose_own_rows(const std::vector<DeviceSpeeds::Product>& products);

}  // namespace redline
