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

/// A fault that is planted in the synchronization of a kernel, for tests of the emulated device: each must be found.
enum class Fault : uint8_t {
  kNone,
  kLostNotify,      ///< an event is not notified
  kMissingRelease,  ///< an event is notified before the stores of the block are visible
  kEarlyPage,       ///< the loader fills a stage that consumers still read
  kWrongParity,     ///< a consumer waits for the other phase of a full barrier
  kEarlyArrival,    ///< lanes arrive before the copies that they have issued
  kLostTicket,      ///< a number is drawn that no block gets
  kLostCopy,        ///< a copy that never arrives
};

struct MachineOptions {
  /// 0: fibers run until they wait, copies arrive when nothing else can run. Otherwise fibers are resumed, and copies
  /// arrive, in a random order that this number determines.
  uint64_t seed = 0;
  Fault fault = Fault::kNone;
  int fault_at = 0;  ///< which of the places where the fault can happen, in the order of this run
  /// Without, it is a device before sm_90: weights are copied by lanes.
  bool has_bulk_copies = true;
  int ring_stages = 0;  ///< of the shared memory of a block; 0: as many as kernels use
};

/// What memory a device has given out: stores outside it, and bulk copies of memory that kernels write, are errors.
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
  int64_t bytes = 0;  ///< announced and not arrived
  uint32_t phase = 0;
};

/// A block in progress.
struct Block {
  Machine* machine = nullptr;
  int index = 0;
  std::vector<uint8_t> shared;
  std::vector<Barrier> barriers;
  StoreLog log;
  int arrived = 0;          ///< of consumer_sync
  uint32_t generation = 0;  ///< of consumer_sync
  /// By warp: the descriptors of its products with its group, in order, and whether it has stored in shared memory
  /// without publishing that.
  std::vector<std::vector<uint64_t>> products;
  std::vector<uint8_t> unpublished;
};

/// What a warp waits for.
struct WaitFor {
  enum Kind : uint8_t { kNothing, kTurn, kConsumers, kBarrier, kEvent, kGroup } kind = kNothing;
  uint32_t generation = 0;  ///< of kConsumers
  int barrier = 0;
  uint32_t parity = 0;
  const uint64_t* counter = nullptr;
  uint64_t target = 0;  ///< of kEvent; of kGroup: products that all four warps have issued
};

/// A run of some blocks.
struct Grid {
  int blocks = 1, warps = 1;
  int shared_bytes = 0, barriers = 0;
  void (*prepare)(Block& block) = nullptr;  ///< initializes mbarriers, before any warp of the block runs
};

class Machine {
 public:
  /// `memory` must outlive the machine.
  explicit Machine(const MemoryMap& memory) : memory_(memory) {}

  /// Runs `warp_main(block, warp)` on a fiber for each warp of each block until all have ended.
  /// internal: deadlock, or a kernel broke a rule of the device; the message lists all waits.
  Status run(const Grid& grid, const MachineOptions& options, const std::function<void(Block&, int)>& warp_main);

  // For kernels, on the fiber of a warp.
  void wait(Block& block, int warp, WaitFor what);
  /// The waits of the kernel have a time limit. It has passed when no thread can run: waits for events return first,
  /// then those for mbarriers.
  void watch() { is_watched_ = true; }
  bool has_expired() const { return expired_ != Expired::kNone; }
  /// Another fiber may run here, where the order is random.
  void may_switch(Block& block, int warp) {
    if (options_.seed != 0) maybe_pause(block, warp);
  }
  void arrive(Block& block, int barrier);
  void expect_bytes(Block& block, int barrier, int64_t bytes);
  void copy_later(Block& block, uint32_t to, const void* from, int64_t bytes, int barrier);
  /// As copy_later() by the lanes of a warp; no barrier counts it.
  void copy_by_lanes(Block& block, int warp, uint32_t to, const void* from, int64_t bytes);
  /// Arrivals of `lanes` at the barrier, after the copies that the warp has issued before.
  void arrive_later(Block& block, int warp, int barrier, int lanes);
  bool has_bulk_copies() const { return options_.has_bulk_copies; }
  void release(Block& block, uint64_t* counter);
  /// Remembers the first rule that was broken; the run ends with it.
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
  /// What happens later: a copy, or arrivals that follow copies.
  struct Copy {
    Block* block;
    uint32_t to;
    const void* from;
    int64_t bytes;
    int barrier;       ///< -1: of a copy by lanes
    int warp = -1;     ///< of copies by lanes and their arrivals
    int arrivals = 0;  ///< not 0: there is nothing to copy
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
