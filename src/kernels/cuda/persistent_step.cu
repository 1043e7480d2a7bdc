// All kernels as tasks of one launch per step.
#include "kernels/cuda/block.cuh"

namespace redline::tiles {
namespace {

/// Three groups of four warps, since registers move between groups only: two of consumers and that of the loader.
constexpr int kGroupWarps = 4;
constexpr int kPersistentThreads = (kConsumerWarps + kGroupWarps) * kWarpLanes;
/// 168 registers a thread to begin with. The loader's group gives most of its own to the consumers.
constexpr int kLoaderRegisters = 40, kConsumerRegisters = 232;
static_assert(kConsumerWarps % kGroupWarps == 0);
static_assert(kGroupWarps * kLoaderRegisters + kConsumerWarps * kConsumerRegisters ==
              (kConsumerWarps + kGroupWarps) * 168);

__global__ void __launch_bounds__(kPersistentThreads, 1) run_whole_step(ProgramTables program) {
  extern __shared__ __align__(1024) uint8_t shared[];
  Warp w = make_warp(shared);
  init_ring(w);
  if (w.index() >= kConsumerWarps) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kLoaderRegisters));
    if (w.index() == kConsumerWarps) load_persistent(program, static_cast<int>(blockIdx.x), w);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    compute_persistent(program, static_cast<int>(blockIdx.x), w);
  }
}

}  // namespace

const CudaKernel& persistent_step() {
  static const CudaKernel kernel = {reinterpret_cast<const void*>(run_whole_step), kPersistentThreads,
                                    kBlockSharedBytes};
  return kernel;
}

}  // namespace redline::tiles
