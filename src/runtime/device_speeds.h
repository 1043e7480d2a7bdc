// Measures the peak speeds of a tile device, and from how many rows its library is faster than Redline's own kernels.
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
  /// read: comparing two tensors. copy: bytes read plus bytes written. upload: from pageable host memory. download: to
  /// host memory.
  double read_bytes_per_s = 0, copy_bytes_per_s = 0, upload_bytes_per_s = 0, download_bytes_per_s = 0;
  double launch_seconds = 0;  ///< time of one empty kernel, when many are launched in a row
  double step_seconds = 0;    ///< time of a step with one empty kernel: upload, launch, wait, download
  /// One measured product: y = x + x w^T with random numbers, w [size, size] in bfloat16.
  struct Product {
    int64_t rows = 0, size = 0;
    double own_seconds = 0;
    std::optional<double> library_seconds;
    double flops() const { return 2.0 * static_cast<double>(rows) * static_cast<double>(size * size); }
  };
  std::vector<Product> products;
  /// Peak rate of large square matrix products with random numbers; type "bf16", "e4m3" or "int8".
  struct Peak {
    std::string type;
    std::string by;               ///< "cuBLASLt 13.0.2" or "own kernels"; "": the device cannot multiply this type
    double operations_per_s = 0;  ///< multiplications plus additions
    std::string reason;           ///< why the device cannot multiply this type
  };
  std::vector<Peak> peaks;
  /// Largest number of rows that Redline's own kernels multiply; the library is faster with more. nullopt: no library.
  std::optional<int64_t> own_rows;
};

/// Runs all measurements. `on_part` returns false to stop them (cancelled). An emulated device is measured with small
/// tensors.
Result<DeviceSpeeds> measure_device_speeds(const std::shared_ptr<OpenDevice>& device, WorkerTeam& team,
                                           const std::function<bool()>& on_part = {});

/// Returns the largest number of rows at which an own kernel is as fast as the library, or 0. `products` must be in
/// ascending order of rows, and each must have a time of the library.
int64_t choose_own_rows(const std::vector<DeviceSpeeds::Product>& products);

}  // namespace redline
