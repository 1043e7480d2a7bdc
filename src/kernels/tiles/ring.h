// A ring of stages in shared memory between the loader and the consumers of a block. Each stage has two mbarriers:
// `full` completes when the loader has announced its bytes and all of them have arrived, `empty` when every consumer
// warp has released the stage. Position and parity carry over from task to task, so in a persistent step the loader
// fills stages for the next task while the consumers still compute this one. The loader has two ways to copy: by the
// engine of bulk copies, which counts bytes, or by its lanes (cp.async), each of which arrives when its copies have.
#pragma once

#include "kernels/tiles/warp.h"

namespace redline::tiles {

/// The position of one side of the ring. Both sides count the same stages in the same order.
struct RingPosition {
  int stage = 0;
  uint32_t parity = 0, ticket_parity = 0;
  TILE_FN void advance(Warp& w) {
    if (++stage < w.ring_stages()) return;
    stage = 0;
    parity ^= 1;
  }
};

struct Ring {
  static TILE_CONST_FN int full(int stage) { return stage; }
  static TILE_CONST_FN int empty(int stage) { return kMaxRingStages + stage; }
  static TILE_CONST_FN int ticket_full() { return 2 * kMaxRingStages; }
  static TILE_CONST_FN int ticket_empty() { return 2 * kMaxRingStages + 1; }
  static TILE_CONST_FN uint32_t slot(int stage, int slot) {
    return static_cast<uint32_t>(kRingOffset + stage * kStageBytes + slot * kSlotBytes);
  }

  /// Initializes the barriers. Called by one warp, before any other use.
  static TILE_FN void init(Warp& w) {
    for (int stage = 0; stage < kMaxRingStages; ++stage) {
      w.barrier_init(full(stage), w.has_bulk_copies() ? 1 : kWarpLanes);
      w.barrier_init(empty(stage), kConsumerWarps);
    }
    w.barrier_init(ticket_full(), 1);
    w.barrier_init(ticket_empty(), 1);
  }
  /// Loader: waits until the consumers have released the stage to fill next. In the first round every stage is free:
  /// the phase before the first one has the opposite parity and counts as complete.
  static TILE_FN int acquire(Warp& w, const RingPosition& at) {
    w.barrier_wait(empty(at.stage), at.parity ^ 1);
    return at.stage;
  }
  /// Loader: announces the bytes of the stage, which fill() copies to its slots; end_fill() must follow the last one.
  static TILE_FN void begin_fill(Warp& w, int stage, int bytes) {
    if (w.has_bulk_copies()) w.barrier_expect(full(stage), bytes);
  }
  /// Loader: copies `bytes`, a multiple of 16, from memory that no kernel writes.
  static TILE_FN void fill(Warp& w, int stage, int slot_index, const void* from, int bytes) {
    if (w.has_bulk_copies()) w.bulk_copy(slot(stage, slot_index), from, bytes, full(stage));
    else w.async_copy(slot(stage, slot_index), from, bytes);
  }
  static TILE_FN void end_fill(Warp& w, int stage) {
    if (!w.has_bulk_copies()) w.async_arrive(full(stage));
  }
  /// Consumer: waits until the stage is full.
  static TILE_FN int wait(Warp& w, const RingPosition& at) {
    w.barrier_wait(full(at.stage), at.parity);
    return at.stage;
  }
  /// Consumer: releases the stage; this warp no longer reads it.
  static TILE_FN void release(Warp& w, RingPosition& at) {
    w.barrier_arrive(empty(at.stage));
    at.advance(w);
  }
};

/// The choice of the tile of a shared stage that the block computes next. The loader draws it, one ahead of the
/// consumers, and the first consumer warp takes it.
struct Tickets {
  static constexpr uint32_t kNone = 0xffffffffu;

  /// Draws a tile. `begin` is the value of the counter at the beginning of the step.
  static TILE_FN uint32_t draw(Warp& w, RingPosition& at, uint64_t* counter, uint64_t begin) {
    w.barrier_wait(Ring::ticket_empty(), at.ticket_parity ^ 1);
    if (w.is_abandoned()) return kNone;
    const auto ticket = static_cast<uint32_t>(w.draw(counter) - begin);
    w.store_shared(Lanes<uint32_t>(uint32_t{kTicketOffset}), Lanes<uint32_t>(ticket));
    w.barrier_arrive(Ring::ticket_full());
    at.ticket_parity ^= 1;
    return ticket;
  }
  static TILE_FN uint32_t take(Warp& w, RingPosition& at) {
    w.barrier_wait(Ring::ticket_full(), at.ticket_parity);
    if (w.is_abandoned()) return kNone;
    const uint32_t ticket = w.load_shared_uniform(kTicketOffset);
    w.barrier_arrive(Ring::ticket_empty());
    at.ticket_parity ^= 1;
    return ticket;
  }
};

}  // namespace redline::tiles
