// The emulated device: blocks whose warps are fibers, with only the guaranteed memory and barrier semantics. Shared
// memory starts as poison, bulk copies arrive late over poisoned bytes, mbarriers count arrivals, bytes and parity, and
// stores of a block reach the others with a release only.
#pragma once

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/emu/fiber.h"
#include "kernels/emu/store_log.h"

namespace redline::emu {

/// A fault that tests plant in the synchronization of a kernel. The emulated device must detect each of them.
enum class Fault : uint8_t {
  kNone,
  kLostNotify,      ///< an event is not notified
  kMissingRelease,  ///< an event is notified before the stores of the block are visible
  kEarlyPage,       ///< the loader fills a stage that consumers still read
  kWrongParity,     ///< a consumer waits for the other phase of a full barrier
  kEarlyArrival,    ///< lanes arrive before the copies that they have issued
  kLostTicket,      ///< a ticket is drawn that no block gets
  kLostCopy,        ///< a copy never arrives
};

struct MachineOptions {
  /// 0: fibers run until they wait, and copies arrive when nothing else can run. Otherwise fibers are resumed, and
  /// copies arrive, in a random order that this number determines.
  uint64_t seed = 0;
  Fault fault = Fault::kNone;
  int fault_at = 0;  ///< index of the place at which the fault happens, in the order of this run
  /// If false, the machine behaves like a device before sm_90: lanes copy the weights.
  bool has_bulk_copies = true;
  int ring_stages = 0;  ///< ring stages in the shared memory of a block; 0: as many as kernels use
};

/// The allocated memory of a device. Stores outside it, and bulk copies of memory that kernels may write, are errors.
class MemoryMap {
 public:
  void add(const void* data, int64_t bytes, bool is_constant);
  void remove(const void* data);
  bool is_writable(uintptr_t begin, size_t bytes) const { return covers(begin, bytes, false); }
  bool is_constant(uintptr_t begin, size_t bytes) const { return covers(begin, bytes, true); }

 private:
  struct Range {
    uintptr_t begin, end;
    bool is_constant;
  };
  bool covers(uintptr_t begin, size_t bytes, bool constant) const;
  std::vector<Range> ranges_;  ///< sorted by begin
};

class Machine;

/// One mbarrier.
struct Barrier {
  int count = 0, pending = 0;
  int64_t bytes = 0;  ///< bytes that are announced and have not arrived
  uint32_t phase = 0;
};

/// A block that is running.
struct Block {
  Machine* machine = nullptr;
  int index = 0;
  std::vector<uint8_t> shared;
  std::vector<Barrier> barriers;
  StoreLog log;
  int arrived = 0;          ///< warps that have arrived at consumer_sync
  uint32_t generation = 0;  ///< number of completed calls of consumer_sync
  /// State by warp: the descriptors of its group products in order, and whether it has unpublished stores to shared
  /// memory.
  std::vector<std::vector<uint64_t>> products;
  std::vector<uint8_t> unpublished;
};

/// The condition that a warp waits for.
struct WaitFor {
  enum Kind : uint8_t { kNothing, kTurn, kConsumers, kBarrier, kEvent, kGroup } kind = kNothing;
  uint32_t generation = 0;  ///< generation when the wait began; used by kConsumers
  int barrier = 0;
  uint32_t parity = 0;
  const uint64_t* counter = nullptr;
  /// Awaited count of kEvent; for kGroup, the number of products that all four warps must have issued.
  uint64_t target = 0;
};

/// Size of a run: blocks and warps per block.
struct Grid {
  int blocks = 1, warps = 1;
  int shared_bytes = 0, barriers = 0;
  void (*prepare)(Block& block) = nullptr;  ///< initializes mbarriers, before any warp of the block runs
};

/// Runs kernels warp by warp and checks the rules of the device.
class Machine {
 public:
  /// `memory` must outlive the machine.
  explicit Machine(const MemoryMap& memory) : memory_(memory) {}

  /// Runs `warp_main(block, warp)` on a fiber for each warp of each block until all have ended. internal: deadlock, or
  /// a kernel broke a rule of the device; the message lists all waits.
  Status run(const Grid& grid, const MachineOptions& options, const std::function<void(Block&, int)>& warp_main);

  // Functions for kernels, called on the fiber of a warp.
  void wait(Block& block, int warp, WaitFor what);
  /// Gives the waits of the kernel a time limit. The limit passes when no thread can run: waits for events return
  /// first, then waits for mbarriers.
  void watch() { is_watched_ = true; }
  bool has_expired() const { return expired_ != Expired::kNone; }
  /// Lets another fiber run here if the order is random.
  void may_switch(Block& block, int warp) {
    if (options_.seed != 0) maybe_pause(block, warp);
  }
  void arrive(Block& block, int barrier);
  void expect_bytes(Block& block, int barrier, int64_t bytes);
  void copy_later(Block& block, uint32_t to, const void* from, int64_t bytes, int barrier);
  /// Copies like copy_later(), by the lanes of a warp; no barrier counts the copy.
  void copy_by_lanes(Block& block, int warp, uint32_t to, const void* from, int64_t bytes);
  /// Makes `lanes` arrive at the barrier after the copies that the warp has issued before.
  void arrive_later(Block& block, int warp, int barrier, int lanes);
  bool has_bulk_copies() const { return options_.has_bulk_copies; }
  void release(Block& block, uint64_t* counter);
  /// Stores the first violation of a rule; it ends the run.
  void fail(Status status) {
    if (failure_.ok()) failure_ = std::move(status);
  }
  bool plants(Fault fault) { return options_.fault == fault && fault_count_++ == options_.fault_at; }

 private:
  struct WarpState {
    Fiber fiber;
    Block* block = nullptr;
    int warp = 0;
    WaitFor waits;
  };
  /// A delayed action: a copy, or arrivals that follow copies.
  struct Copy {
    Block* block;
    uint32_t to;
    const void* from;
    int64_t bytes;
    int barrier;       ///< barrier that counts the copy; -1: a copy by lanes
    int warp = -1;     ///< warp of copies by lanes and of their arrivals
    int arrivals = 0;  ///< number of arrivals; 0: this is a copy
  };
  bool may_copy(const Block& block, uint32_t to, const void* from, int64_t bytes);
  bool expire();
  void maybe_pause(Block& block, int warp);
  bool can_run(const WarpState& state) const;
  void complete(Block& block, int barrier);
  void land(size_t copy);
  void check_stores(const Block& block);
  std::string dump() const;

  const MemoryMap& memory_;
  MachineOptions options_;
  std::vector<std::unique_ptr<WarpState>> warps_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Copy> copies_;
  std::minstd_rand random_;
  size_t num_warps_ = 0;
  int warps_of_block_ = 0;
  int fault_count_ = 0;
  bool is_watched_ = false;
  enum class Expired : uint8_t { kNone, kEvents, kAll } expired_ = Expired::kNone;
  Status failure_;
};

}  // namespace redline::emu
