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
//   has_bulk_copies()             whether the device has the next one (sm_90 and newer)
//   bulk_copy                     asynchronous copy of global memory that no kernel writes, completed on an mbarrier
//   async_copy, async_arrive      the same by the lanes of a warp, for older devices: an arrival of each lane follows
//                                 its copies
//   ring_stages()                 that the shared memory of the block has room for
//   shared_address                of an offset in shared memory, as descriptors of matrices have it
//   publish_shared                what this warp has stored in shared memory can be read by products of warp groups,
//                                 after a barrier
//   event_wait, event_release     counted events of a persistent step
//   draw                          the next number of a counter that all blocks of a persistent step draw from
//   watch, is_abandoned           a time limit for each wait: past it all return at once and the step is abandoned
//   at_task                       what the report of such a wait names
#pragma once

#include "kernels/tiles/lanes.h"

namespace redline::tiles {

/// Warps of a block: consumers compute, one loader fills the ring of weights.
inline constexpr int kConsumerWarps = 8;
inline constexpr int kBlockWarps = kConsumerWarps + 1;
/// Shared memory of a block: the activations of a product, a word for the whole block, the mbarriers, and a ring of as
/// many stages as a multiprocessor has memory for: four of 227 KiB (9.0), three of 163 KiB (8.0), one of 99 KiB (8.6,
/// 8.9, 12.0).
inline constexpr int kMaxRingStages = 4, kSlotBytes = 4096;
inline constexpr int kStageBytes = kConsumerWarps * kSlotBytes;
inline constexpr int kActivationBytes = 64 << 10;
inline constexpr int kFlagOffset = kActivationBytes, kBarrierOffset = kFlagOffset + 128;
inline constexpr int kRingOffset = kFlagOffset + 1024;
/// A number that the loader hands to the consumers (Tickets in ring.h).
inline constexpr int kTicketOffset = kFlagOffset + 64;
/// mbarriers: full and empty of every stage, and of the ticket.
inline constexpr int kNumBarriers = 2 * kMaxRingStages + 2;
static_assert(kBarrierOffset + 8 * kNumBarriers <= kRingOffset);
/// Bytes of the shared memory of a block with this many stages, and how many stages there are in so many bytes; 0: too
/// little memory.
TILE_CONST_FN int shared_bytes_of(int stages) { return kRingOffset + stages * kStageBytes; }
TILE_CONST_FN int ring_stages_of(int shared_bytes) {
  const int stages = shared_bytes < kRingOffset ? 0 : (shared_bytes - kRingOffset) / kStageBytes;
  return stages < kMaxRingStages ? stages : kMaxRingStages;
}

/// The record of a hung step: the first wait that timed out.
struct HangReport {
  enum Kind : uint32_t { kNothing, kEvent, kBarrier };
  uint32_t kind;
  uint32_t block;
  uint32_t task;   ///< of a persistent step; of a launch, its stage
  uint32_t wait;   ///< which of the program's waits; of kBarrier, the number of the mbarrier
  uint64_t count;  ///< that the event had reached; of kBarrier, the warp
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
