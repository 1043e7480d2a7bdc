// The other kernels as kernels of their own.
#include "kernels/cuda/block.cuh"

namespace redline::tiles {

const CudaKernel* other_kernel(KernelId kernel) {
  switch (kernel) {
#define REDLINE_KERNEL(K) \
  case KernelId::k##K: return stage_kernel_of<K>();
    REDLINE_TILE_OTHERS(REDLINE_KERNEL)
#undef REDLINE_KERNEL
    default: return nullptr;
  }
}

}  // namespace redline::tiles
