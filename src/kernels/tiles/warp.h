// The interface between kernel bodies and the machine that runs them: one warp of a block. Device code gets it from
// kernels/cuda/warp.cuh, host code from the emulated device; both have the same members:
//
//   index()                       number of this warp among the consumers; the loader is warp kConsumerWarps
//   lane()                        number of each lane
//   begin_task()                  before each task of a persistent step
//   load, store                   global memory by lane, with a mask; load_uniform: one scalar for all lanes
//   load_shared, store_shared     shared memory at byte offsets by lane; load_shared4: four floats at a multiple of 16
//   shuffle_xor, broadcast        exchange between lanes
//   ballot                        a bit for each lane
//   consumer_sync()               named barrier of all consumer warps
//   barrier_init, barrier_arrive, barrier_expect, barrier_wait    mbarriers, by number: arrivals, bytes, parity
//   bulk_copy                     asynchronous copy of global memory that no kernel writes, completed on an mbarrier
//   event_wait, event_release     counted events of a persistent step
//   watch, is_abandoned           a deadline for all waits: past it they return at once and the step is abandoned
#pragma once

#include "kernels/tiles/lanes.h"

namespace redline::tiles {

/// Warps of a block: consumers compute, one loader fills the ring of weights.
inline constexpr int kConsumerWarps = 8;
inline constexpr int kBlockWarps = kConsumerWarps + 1;
/// Shared memory of a block: the ring, the activations of a product, and what is left.
inline constexpr int kRingStages = 4, kSlotBytes = 4096;
inline constexpr int kStageBytes = kConsumerWarps * kSlotBytes;
inline constexpr int kActivationBytes = 64 << 10;
inline constexpr int kFlagOffset = kRingStages * kStageBytes + kActivationBytes;  ///< a word for the whole block
inline constexpr int kSharedBytes = kFlagOffset + 128;
/// mbarriers: full and empty of every stage.
inline constexpr int kNumBarriers = 2 * kRingStages;

/// The record of a hung step: the first wait that timed out.
struct HangReport {
  uint32_t abandoned;  ///< 0: nothing
  uint32_t block, task, wait;
  uint64_t count;  ///< that the event had reached
};

}  // namespace redline::tiles

#ifdef __CUDACC__
#include "kernels/cuda/warp.cuh"
#else
#include "kernels/emu/warp.h"
#endif

namespace redline::tiles {

/// Sum or maximum over the lanes, the same in all of them, in a fixed order.
TILE_FN Lanes<float> warp_sum(Warp& w, Lanes<float> x) {
  for (int distance = kWarpLanes / 2; distance > 0; distance /= 2) x = x + w.shuffle_xor(x, distance);
  return x;
}
TILE_FN Lanes<float> warp_max(Warp& w, Lanes<float> x) {
  for (int distance = kWarpLanes / 2; distance > 0; distance /= 2) x = max_of(x, w.shuffle_xor(x, distance));
  return x;
}

}  // namespace redline::tiles
