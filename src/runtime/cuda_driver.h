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

/// Whether there is an NVIDIA driver at all, old or broken ones and those without their library included.
bool has_cuda_driver();

/// Why libcuda.so.1 cannot be loaded. `kernel_driver`: what the driver in the kernel shows, in containers too.
std::string missing_driver_text(const char* kernel_driver);

/// unsupported: there is no driver, it is too old, or it finds no GPU that can run the kernels; the message says which,
/// with both versions.
Result<CudaDriver> find_cuda_driver();

/// A context of a GPU, which everything on it needs and which takes some memory.
class CudaContext {
 public:
  /// out_of_memory: another program has the memory of the GPU; states what is free and what is needed. unsupported: the
  /// driver makes no context for another reason.
  static Result<CudaContext> open(int index, const CudaGpu& gpu);
  ~CudaContext();
  CudaContext(CudaContext&& other) noexcept : device_(std::exchange(other.device_, -1)) {}
  CudaContext& operator=(CudaContext&&) = delete;

 private:
  explicit CudaContext(int device) : device_(device) {}
  int device_;  ///< -1: none
};

/// The module with the CUDA kernels, "redline_cuda.so": `setting` (REDLINE_CUDA_MODULE), else beside the program or the
/// library, or where an installation has it (lib/redline). "": this build has none.
std::string find_cuda_module(const std::string& setting);

}  // namespace redline
