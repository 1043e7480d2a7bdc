// A ring of stages in shared memory between the loader and the consumers of a block. Each stage has two mbarriers:
// `full` completes when the loader has announced its bytes and all of them have arrived, `empty` when every consumer
// warp has released the stage. Position and parity carry over from task to task, so in a persistent step the loader
// fills stages for the next task while the consumers still compute this one.
#pragma once

#include "kernels/tiles/warp.h"

namespace redline::tiles {

/// Where one side of the ring is. Both sides count the same stages in the same order.
struct RingPosition {
  uint32_t count = 0;
  TILE_FN int stage() const { return static_cast<int>(count % kRingStages); }
  TILE_FN uint32_t parity() const { return count / kRingStages % 2; }
};

struct Ring {
  static TILE_CONST_FN int full(int stage) { return stage; }
  static TILE_CONST_FN int empty(int stage) { return kRingStages + stage; }
  static TILE_CONST_FN uint32_t slot(int stage, int slot) {
    return static_cast<uint32_t>(stage * kStageBytes + slot * kSlotBytes);
  }

  /// By one warp, before any other use.
  static TILE_FN void init(Warp& w) {
    for (int stage = 0; stage < kRingStages; ++stage) {
      w.barrier_init(full(stage), 1);
      w.barrier_init(empty(stage), kConsumerWarps);
    }
  }
  /// Loader: waits until the consumers have released the stage that is filled next. In the first round every stage is
  /// free: the phase before the first one has the opposite parity and counts as complete.
  static TILE_FN int acquire(Warp& w, const RingPosition& at) {
    w.barrier_wait(empty(at.stage()), at.parity() ^ 1);
    return at.stage();
  }
  /// Loader: announces the bytes of the stage; its copies are issued afterwards.
  static TILE_FN void announce(Warp& w, int stage, int bytes) { w.barrier_expect(full(stage), bytes); }
  /// Consumer: waits until the stage is full.
  static TILE_FN int wait(Warp& w, const RingPosition& at) {
    w.barrier_wait(full(at.stage()), at.parity());
    return at.stage();
  }
  /// Consumer: this warp reads the stage no more.
  static TILE_FN void release(Warp& w, RingPosition& at) {
    w.barrier_arrive(empty(at.stage()));
    ++at.count;
  }
};

}  // namespace redline::tiles
