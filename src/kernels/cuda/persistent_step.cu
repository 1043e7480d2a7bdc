// All kernels as tasks of one launch per step.
#include "kernels/cuda/block.cuh"

namespace redline::tiles {
namespace {

__global__ void __launch_bounds__(kBlockWarps* kWarpLanes, 1) run_whole_step(ProgramTables program) {
  extern __shared__ __align__(1024) uint8_t shared[];
  Warp w = make_warp(shared);
  init_ring(w);
  if (w.index() == kConsumerWarps) load_persistent(program, static_cast<int>(blockIdx.x), w);
  else compute_persistent(program, static_cast<int>(blockIdx.x), w);
}

}  // namespace

const CudaKernel& persistent_step() {
  static const CudaKernel kernel = {reinterpret_cast<const void*>(run_whole_step), kBlockWarps * kWarpLanes, true};
  return kernel;
}

}  // namespace redline::tiles
