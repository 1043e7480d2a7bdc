// Warps and shared memory of a block, and the time limit of waits with its report.
#pragma once

#include <cstdint>

#include "kernels/tiles/lanes.h"

namespace redline::tiles {

/// Number of warps of a block: consumers compute, and one loader fills the ring of weights.
inline constexpr int kConsumerWarps = 8;
inline constexpr int kBlockWarps = kConsumerWarps + 1;
/// Layout of the shared memory of a block: the activations of a product, a word for the whole block, the mbarriers, and
/// the ring. The ring has as many stages as the shared memory of a multiprocessor allows: four with 227 KiB (9.0),
/// three with 163 KiB (8.0), one with 99 KiB (8.6, 8.9, 12.0).
inline constexpr int kMaxRingStages = 4, kSlotBytes = 4096;
inline constexpr int kStageBytes = kConsumerWarps * kSlotBytes;
inline constexpr int kActivationBytes = 64 << 10;
inline constexpr int kFlagOffset = kActivationBytes, kBarrierOffset = kFlagOffset + 128;
inline constexpr int kRingOffset = kFlagOffset + 1024;
/// Offset of the number that the loader passes to the consumers (Tickets in ring.h).
inline constexpr int kTicketOffset = kFlagOffset + 64;
/// Number of mbarriers: full and empty of every stage, and of the ticket.
inline constexpr int kNumBarriers = 2 * kMaxRingStages + 2;
static_assert(kBarrierOffset + 8 * kNumBarriers <= kRingOffset);
/// shared_bytes_of returns the bytes of shared memory of a block with this many stages; ring_stages_of returns the
/// stages that fit into so many bytes, or 0.
TILE_CONST_FN int shared_bytes_of(int stages) { return kRingOffset + stages * kStageBytes; }
TILE_CONST_FN int ring_stages_of(int shared_bytes) {
  const int stages = shared_bytes < kRingOffset ? 0 : (shared_bytes - kRingOffset) / kStageBytes;
  return stages < kMaxRingStages ? stages : kMaxRingStages;
}

/// Measures how long a wait has taken, by a clock that may be set meanwhile. The time between two calls counts as an
/// eighth of the limit at most, so that a clock jump does not end the wait too early.
class WaitTime {
 public:
  TILE_CONST_FN bool exceeds(uint64_t now_ns, uint64_t limit_ns) {
    const auto now = static_cast<uint32_t>(now_ns >> kUnitBits);
    const uint64_t limit = limit_ns >> kUnitBits, most = limit / 8 + 1;
    const uint32_t since = now - last_;  // after a jump back, a large number
    if (last_ != 0) passed_ += since < most ? since : static_cast<uint32_t>(most);
    last_ = now;
    return passed_ > limit;
  }

 private:
  /// A unit is about a millisecond, so that 32 bits suffice: a warp has few registers.
  static constexpr int kUnitBits = 20;
  uint32_t last_ = 0, passed_ = 0;  ///< last_ 0: the wait has not begun
};

/// The record of a hung step: the first wait that timed out.
struct HangReport {
  enum Kind : uint32_t { kNothing, kEvent, kBarrier };
  uint32_t kind;
  uint32_t block;
  uint32_t task;   ///< task of a persistent step, or stage of a launch
  uint32_t wait;   ///< index in the program's waits; for kBarrier, the number of the mbarrier
  uint64_t count;  ///< count that the event had reached; for kBarrier, the warp
};

}  // namespace redline::tiles
