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
//   has_bulk_copies()             true if the device has bulk_copy (sm_90 and newer)
//   bulk_copy                     asynchronous copy of global memory that no kernel writes, completed on an mbarrier
//   async_copy, async_arrive      asynchronous copy by the lanes of a warp, for older devices; each lane arrives at the
//                                 mbarrier after its copies
//   ring_stages()                 number of ring stages that the shared memory of the block has room for
//   shared_address                address of an offset in shared memory, in the form of matrix descriptors
//   publish_shared                makes this warp's stores to shared memory readable by products of warp groups, after
//                                 a barrier
//   event_wait, event_release     counted events of a persistent step
//   draw                          the next number of a counter that all blocks of a persistent step draw from
//   watch, is_abandoned           a time limit for each wait; after it all waits return at once and the step is aborted
//   at_task                       sets the task that the report of a timed-out wait names
#pragma once

#include "kernels/tiles/block.h"
#include "kernels/tiles/lanes.h"

#ifdef __CUDACC__
#include "kernels/cuda/warp.cuh"
#else
#include "kernels/emu/warp.h"
#endif

namespace redline::tiles {

/// Return the sum or maximum over the lanes, computed in a fixed order, in all lanes.
TILE_FN Lanes<float> warp_sum(Warp& w, Lanes<float> x) {
  for (int distance = kWarpLanes / 2; distance > 0; distance /= 2) x = x + w.shuffle_xor(x, distance);
  return x;
}
TILE_FN Lanes<float> warp_max(Warp& w, Lanes<float> x) {
  for (int distance = kWarpLanes / 2; distance > 0; distance /= 2) x = max_of(x, w.shuffle_xor(x, distance));
  return x;
}

}  // namespace redline::tiles
