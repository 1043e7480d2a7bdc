// The start of every kernel: warps, the ring, and dependencies between launches.
#pragma once

#include "kernels/cuda/launch.cuh"

namespace redline::tiles {

__device__ __forceinline__ Warp make_warp(uint8_t* shared) {
  return Warp(shared, static_cast<int>(threadIdx.x) / kWarpLanes);
}

/// Initializes the mbarriers by one warp and makes them visible to all, including the engine of bulk copies.
__device__ __forceinline__ void init_ring(Warp& w) {
  if (w.index() == 0) Ring::init(w);
#if REDLINE_HAS_SM90
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
  __syncthreads();
}

/// Waits for the results of the previous kernel; none may be read earlier (programmatic dependent launch).
__device__ __forceinline__ void wait_for_previous() {
#if REDLINE_HAS_SM90
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// Lets the next kernel begin and run up to its wait. Before sm_90, a kernel begins when the previous one has ended.
__device__ __forceinline__ void begin_next() {
#if REDLINE_HAS_SM90
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

static_assert(shared_bytes_of(4) <= 227 * 1024 && shared_bytes_of(3) <= 163 * 1024 && shared_bytes_of(1) <= 99 * 1024,
              "the shared memory of a block on sm_90, sm_80 and the others");

/// Number of threads per block; without a loader, warps have more registers.
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
    w.watch(program.hang, program.deadline_ns, static_cast<int>(blockIdx.x));
    w.at_task(static_cast<uint32_t>(stage));
    init_ring(w);
    if (w.index() == kConsumerWarps) {
      // Weights are read before the previous kernel has ended, unless its results select them.
      if constexpr (Kernel::kLoaderWaits) wait_for_previous();
      return Kernel::load(args, tile, w, ring);
    }
  }
  wait_for_previous();
  trace_begin(program, stage, w);
  Kernel::compute(args, tile, *program.step, w, ring);
  trace_end(program, stage, w);
}

template <class Kernel>
const CudaKernel* stage_kernel_of() {
  static const CudaKernel kernel = {reinterpret_cast<const void*>(run_stage<Kernel>), kThreads<Kernel>,
                                    kNeedsShared<Kernel>};
  return &kernel;
}

}  // namespace redline::tiles
