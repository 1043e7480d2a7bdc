// Arithmetic on buffers in the memory of a tile device (backends/backend_memory.h, BufferMath).
#pragma once

#include "backends/backend_memory.h"
#include "backends/tiles/device_memory.h"

namespace redline {

class DeviceBufferMath final : public BufferMath {
 public:
  explicit DeviceBufferMath(std::shared_ptr<OpenDevice> device) : device_(std::move(device)) {}
  const void* device() const override { return device_.get(); }
  /// Allocates the memory that all launches share. The first launch calls it if nothing did before. out_of_memory: none
  /// is free.
  Status prepare();
  Status weighted_sum(Part to, Part base, std::span<const float> weights, std::span<const Part> tensors,
                      int64_t elements) override;
  Result<double> distance(Part a, Part b, int64_t elements) override;
  /// Computes distance() of two addresses in device memory.
  Result<double> compare(const void* a, const void* b, int64_t elements);
  Result<double> product(Part a, Part b, Part c, Part d, int64_t elements) override;

 private:
  Result<double> measure(Part a, Part b, Part c, Part d, bool is_product, int64_t elements);
  Result<double> measure(const float* a, const float* b, const float* c, const float* d, int64_t elements);
  template <class Kernel>
  Status launch(const typename Kernel::Args& args, int32_t stage, tiles::KernelId kernel, int32_t blocks);

  std::shared_ptr<OpenDevice> device_;
  DeviceMemory stages_, step_, args_, sums_;
};

}  // namespace redline
