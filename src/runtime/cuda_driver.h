// Queries the NVIDIA driver through dlopen, without linking against it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace redline {

struct CudaGpu {
  std::string name;
  int major = 0, minor = 0;  ///< compute capability
  int64_t memory_bytes = 0;
};

struct CudaDriver {
  int version = 0;  ///< the newest CUDA it supports: 1000 * major + 10 * minor
  std::vector<CudaGpu> gpus;
};

/// Minimum CUDA version of the driver (driver 580) and minimum compute capability.
inline constexpr int kMinCudaVersion = 13000, kMinCapability = 80;

/// Returns true if there is any NVIDIA driver, including old or broken ones and those without their library.
bool has_cuda_driver();

/// Explains why libcuda.so.1 cannot be loaded. `kernel_driver`: path whose presence shows a kernel driver, in
/// containers too.
std::string missing_driver_text(const char* kernel_driver);

/// Queries the driver. unsupported: there is no driver, it is too old, or it finds no GPU that can run the kernels; the
/// message says which, with the found and the required version.
Result<CudaDriver> find_cuda_driver();

/// A CUDA context of a GPU. Every use of the GPU needs one, and it takes some memory.
class CudaContext {
 public:
  /// Creates the context. out_of_memory: another program uses the memory of the GPU; states free and needed bytes.
  /// unsupported: the driver cannot create a context for another reason.
  static Result<CudaContext> open(int index, const CudaGpu& gpu);
  ~CudaContext();
  CudaContext(CudaContext&& other) noexcept : device_(std::exchange(other.device_, -1)) {}
  CudaContext& operator=(CudaContext&&) = delete;

 private:
  explicit CudaContext(int device) : device_(device) {}
  int device_;  ///< -1: none
};

/// Returns the path of "redline_cuda.so", the module with the CUDA kernels: `setting` (REDLINE_CUDA_MODULE), else next
/// to the program or the library, else where an installation has it (lib/redline). "": this build has none.
std::string find_cuda_module(const std::string& setting);

}  // namespace redline
