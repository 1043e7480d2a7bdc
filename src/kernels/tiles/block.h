// The warps and the shared memory of a block, and what is reported of a wait that timed out.
#pragma once

#include <cstdint>

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
