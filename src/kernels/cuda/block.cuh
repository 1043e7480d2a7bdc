// What every kernel begins with.
#pragma once

#include "kernels/cuda/launch.cuh"

namespace redline::tiles {

inline constexpr int kBlockSharedBytes = kSharedBytes + 8 * kNumBarriers;

__device__ __forceinline__ Warp make_warp(uint8_t* shared) {
  return Warp(shared, static_cast<int>(threadIdx.x) / kWarpLanes);
}

/// The mbarriers are initialized by one warp and seen by all, the engine of bulk copies included.
__device__ __forceinline__ void init_ring(Warp& w) {
  if (w.index() == 0) Ring::init(w);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
}

/// Results of the kernel before: none may be read earlier (programmatic dependent launch).
__device__ __forceinline__ void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
/// The next kernel may begin, up to where it waits.
__device__ __forceinline__ void begin_next() { asm volatile("griddepcontrol.launch_dependents;"); }

static_assert(kBlockSharedBytes <= 227 * 1024, "the shared memory of a block on sm_90");

/// Threads per block; without a loader, warps have more registers.
template <class Kernel>
inline constexpr int kThreads = (Kernel::kLoads ? kBlockWarps : kConsumerWarps) * kWarpLanes;

template <class Kernel>
__global__ void __launch_bounds__(kThreads<Kernel>, 1) run_stage(ProgramTables program, int32_t stage) {
  extern __shared__ __align__(1024) uint8_t shared[];
  const StageTable& table = program.stages[stage];
  const auto& args = *reinterpret_cast<const typename Kernel::Args*>(program.constants + table.args);
  const TileRange tile = tile_of(table, static_cast<int32_t>(blockIdx.x), *program.step, true);
  Warp w = make_warp(shared);
  RingPosition ring;
  begin_next();
  if constexpr (Kernel::kLoads) {
    init_ring(w);
    if (w.index() == kConsumerWarps) {
      // Weights are read before the kernel before has ended, unless its results select them.
      if constexpr (Kernel::kLoaderWaits) wait_for_previous();
      return Kernel::load(args, tile, w, ring);
    }
  }
  wait_for_previous();
  Kernel::compute(args, tile, *program.step, w, ring);
}

template <class Kernel>
const CudaKernel* stage_kernel_of() {
  static const CudaKernel kernel = {reinterpret_cast<const void*>(run_stage<Kernel>), kThreads<Kernel>,
                                    kNeedsShared<Kernel> ? kBlockSharedBytes : 0};
  return &kernel;
}

}  // namespace redline::tiles
