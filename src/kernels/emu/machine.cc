#include "kernels/emu/machine.h"

#include <algorithm>

namespace redline::emu {
namespace {

/// Byte that marks undefined memory. Repeated, it is a NaN in float32, float16 and bfloat16, and an unlikely value of
/// packed weights.
constexpr uint8_t kPoison = 0xff;
/// If the order is random, one in this many loads and stores lets another fiber run.
constexpr uint32_t kSwitchEvery = 64;

}  // namespace

void MemoryMap::add(const void* data, int64_t bytes, bool is_constant) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const Range range{begin, begin + static_cast<uintptr_t>(bytes), is_constant};
  ranges_.insert(std::upper_bound(ranges_.begin(), ranges_.end(), range,
                                  [](const Range& a, const Range& b) { return a.begin < b.begin; }),
                 range);
}

void MemoryMap::remove(const void* data) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  std::erase_if(ranges_, [&](const Range& range) { return range.begin == begin; });
}

bool MemoryMap::covers(uintptr_t begin, size_t bytes, bool constant) const {
  auto after = std::upper_bound(ranges_.begin(), ranges_.end(), begin,
                                [](uintptr_t address, const Range& range) { return address < range.begin; });
  if (after == ranges_.begin()) return false;
  const Range& range = *--after;
  return begin + bytes <= range.end && range.is_constant == constant;
}

Status Machine::run(const Grid& grid, const MachineOptions& options,
                    const std::function<void(Block&, int)>& warp_main) {
  const int blocks = grid.blocks, warps = grid.warps;
  options_ = options;
  random_.seed(static_cast<uint32_t>(options.seed * 2654435761u + 1));
  fault_count_ = 0;
  is_watched_ = false;
  expired_ = Expired::kNone;
  failure_ = {};
  copies_.clear();
  warps_of_block_ = warps;
  num_warps_ = static_cast<size_t>(blocks) * static_cast<size_t>(warps);
  while (blocks_.size() < static_cast<size_t>(blocks)) blocks_.push_back(std::make_unique<Block>());
  while (warps_.size() < num_warps_) warps_.push_back(std::make_unique<WarpState>());
  for (int b = 0; b < blocks; ++b) {
    Block& block = *blocks_[static_cast<size_t>(b)];
    block.machine = this;
    block.index = b;
    block.shared.assign(static_cast<size_t>(grid.shared_bytes), kPoison);
    block.barriers.assign(static_cast<size_t>(grid.barriers), {});
    block.log.clear();
    block.arrived = 0;
    block.generation = 0;
    block.products.assign(static_cast<size_t>(warps), {});
    block.unpublished.assign(static_cast<size_t>(warps), 0);
    if (grid.prepare) grid.prepare(block);
    for (int w = 0; w < warps; ++w) {
      WarpState& state = *warps_[static_cast<size_t>(b) * static_cast<size_t>(warps) + static_cast<size_t>(w)];
      state.block = &block;
      state.warp = w;
      state.waits = {};
      state.fiber.start([&block, w, &warp_main] { warp_main(block, w); });
    }
  }

  size_t left = num_warps_, next = 0;
  std::vector<size_t> ready;
  while (left > 0 && failure_.ok()) {
    if (options_.seed == 0) {
      size_t tried = 0;
      for (; tried < num_warps_; ++tried, next = (next + 1) % num_warps_)
        if (can_run(*warps_[next])) break;
      if (tried < num_warps_) {
        warps_[next]->waits = {};
        if (warps_[next]->fiber.resume()) --left;
        continue;
      }
      if (copies_.empty() && !expire()) break;
      while (!copies_.empty()) land(copies_.size() - 1);
      continue;
    }
    ready.clear();
    for (size_t w = 0; w < num_warps_; ++w)
      if (can_run(*warps_[w])) ready.push_back(w);
    const size_t choices = ready.size() + copies_.size();
    if (choices == 0) {
      if (!expire()) break;
      continue;
    }
    const size_t chosen = random_() % choices;
    if (chosen >= ready.size()) {
      land(chosen - ready.size());
      continue;
    }
    WarpState& state = *warps_[ready[chosen]];
    state.waits = {};
    if (state.fiber.resume()) --left;
  }
  if (failure_.ok() && left > 0) failure_ = internal("emulated device: no thread can run: deadlock\n{}", dump());
  while (has_expired() && !copies_.empty()) land(copies_.size() - 1);
  if (failure_.ok() && !copies_.empty())
    failure_ = internal("emulated device: a block has ended before {} of its copies arrived", copies_.size());
  for (int b = 0; b < blocks; ++b) {
    Block& block = *blocks_[static_cast<size_t>(b)];
    if (failure_.ok()) check_stores(block);
    if (failure_.ok()) block.log.flush();
  }
  // Fibers in the middle of a kernel hold nothing that would have to be destroyed: their stacks are used again.
  return failure_;
}

bool Machine::expire() {
  if (!is_watched_ || expired_ == Expired::kAll) return false;
  expired_ = expired_ == Expired::kNone ? Expired::kEvents : Expired::kAll;
  return true;
}

void Machine::wait(Block& block, int warp, WaitFor what) {
  WarpState& state =
      *warps_[static_cast<size_t>(block.index) * static_cast<size_t>(warps_of_block_) + static_cast<size_t>(warp)];
  state.waits = what;
  if (options_.seed == 0 && can_run(state)) {
    state.waits = {};
    return;
  }
  state.fiber.pause();
}

void Machine::maybe_pause(Block& block, int warp) {
  if (random_() % kSwitchEvery == 0) wait(block, warp, {.kind = WaitFor::kTurn});
}

bool Machine::can_run(const WarpState& state) const {
  if (state.fiber.has_ended()) return false;
  switch (state.waits.kind) {
    case WaitFor::kNothing:
    case WaitFor::kTurn: return true;
    case WaitFor::kConsumers: return state.block->generation != state.waits.generation;
    // The phase before the first one has parity 1.
    case WaitFor::kBarrier:
      return expired_ == Expired::kAll ||
             state.block->barriers[static_cast<size_t>(state.waits.barrier)].phase % 2 != state.waits.parity;
    case WaitFor::kEvent: return has_expired() || *state.waits.counter >= state.waits.target;
    case WaitFor::kGroup:
      for (size_t w = static_cast<size_t>(state.warp) / 4 * 4, end = w + 4; w < end; ++w)
        if (w >= state.block->products.size() || state.block->products[w].size() < state.waits.target) return false;
      return true;
  }
  return false;
}

void Machine::complete(Block& block, int number) {
  Barrier& barrier = block.barriers[static_cast<size_t>(number)];
  if (barrier.pending > 0 || barrier.bytes != 0) return;
  barrier.pending = barrier.count;
  ++barrier.phase;
}

void Machine::arrive(Block& block, int number) {
  if (expired_ == Expired::kAll) return;  // warps that gave up waiting arrive too often
  Barrier& barrier = block.barriers[static_cast<size_t>(number)];
  if (barrier.count == 0)
    return fail(internal("emulated device: mbarrier {} is used before it is initialized", number));
  if (barrier.pending == 0)
    return fail(internal("emulated device: mbarrier {} has more than {} arrivals in a phase", number, barrier.count));
  --barrier.pending;
  complete(block, number);
}

void Machine::expect_bytes(Block& block, int number, int64_t bytes) {
  block.barriers[static_cast<size_t>(number)].bytes += bytes;
  arrive(block, number);
}

bool Machine::may_copy(const Block& block, uint32_t to, const void* from, int64_t bytes) {
  if (bytes % 16 != 0 || to % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0)
    fail(internal("emulated device: a bulk copy of {} bytes to shared {} is not in units of 16 bytes", bytes, to));
  else if (to + static_cast<size_t>(bytes) > block.shared.size())
    fail(internal("emulated device: a bulk copy ends at {} of {} bytes of shared memory", to + bytes,
                  block.shared.size()));
  else if (!memory_.is_constant(reinterpret_cast<uintptr_t>(from), static_cast<size_t>(bytes)))
    fail(internal("emulated device: a bulk copy reads memory that kernels write"));
  else return true;
  return false;
}

void Machine::copy_later(Block& block, uint32_t to, const void* from, int64_t bytes, int barrier) {
  if (!options_.has_bulk_copies)
    return fail(internal("emulated device: a bulk copy on a device that has none (before sm_90)"));
  if (!may_copy(block, to, from, bytes)) return;
  std::fill_n(block.shared.begin() + to, bytes, kPoison);
  if (plants(Fault::kLostCopy)) return;
  copies_.push_back({&block, to, from, bytes, barrier});
}

void Machine::copy_by_lanes(Block& block, int warp, uint32_t to, const void* from, int64_t bytes) {
  if (!may_copy(block, to, from, bytes)) return;
  std::fill_n(block.shared.begin() + to, bytes, kPoison);
  // Lanes take turns with units of 16 bytes: what one has issued may arrive before what another has.
  constexpr int64_t kPiece = 32 * 16;
  for (int64_t at = 0; at < bytes; at += kPiece)
    copies_.push_back({&block, to + static_cast<uint32_t>(at), static_cast<const uint8_t*>(from) + at,
                       std::min(kPiece, bytes - at), -1, warp});
}

void Machine::arrive_later(Block& block, int warp, int barrier, int lanes) {
  if (plants(Fault::kEarlyArrival)) warp = -1;  // of no warp: it follows nothing
  copies_.push_back({&block, 0, nullptr, 0, barrier, warp, lanes});
}

void Machine::land(size_t index) {
  if (copies_[index].arrivals > 0 && copies_[index].warp >= 0)
    for (size_t i = 0; i < index; ++i)
      if (copies_[i].block == copies_[index].block && copies_[i].warp == copies_[index].warp) {
        index = i;  // what comes before
        break;
      }
  const Copy copy = copies_[index];
  copies_.erase(copies_.begin() + static_cast<int64_t>(index));
  for (int i = 0; i < copy.arrivals && failure_.ok(); ++i) arrive(*copy.block, copy.barrier);
  if (copy.arrivals > 0) return;
  std::copy_n(static_cast<const uint8_t*>(copy.from), copy.bytes, copy.block->shared.begin() + copy.to);
  if (copy.barrier < 0) return;
  Barrier& barrier = copy.block->barriers[static_cast<size_t>(copy.barrier)];
  barrier.bytes -= copy.bytes;
  if (barrier.bytes == 0 && barrier.pending == 0) complete(*copy.block, copy.barrier);
}

void Machine::release(Block& block, uint64_t* counter) {
  if (plants(Fault::kLostNotify)) return;
  if (!plants(Fault::kMissingRelease)) {
    check_stores(block);
    block.log.flush();
  }
  ++*counter;
}

void Machine::check_stores(const Block& block) {
  block.log.each([&](uintptr_t address, size_t bytes) {
    // A word of the log may begin before the range that holds its stores.
    if (memory_.is_writable(address, 1) || memory_.is_writable(address + bytes - 1, 1)) return;
    fail(internal("emulated device: block {} stores outside the memory that it may write", block.index));
  });
}

std::string Machine::dump() const {
  std::string text;
  for (size_t w = 0; w < num_warps_; ++w) {
    const WarpState& state = *warps_[w];
    if (state.fiber.has_ended()) continue;
    text += fmt::format("  block {} warp {} waits for ", state.block->index, state.warp);
    const WaitFor& what = state.waits;
    if (what.kind == WaitFor::kBarrier) {
      const Barrier& barrier = state.block->barriers[static_cast<size_t>(what.barrier)];
      text += fmt::format("mbarrier {} parity {}: phase {}, {} arrivals and {} bytes missing\n", what.barrier,
                          what.parity, barrier.phase, barrier.pending, barrier.bytes);
    } else if (what.kind == WaitFor::kEvent) {
      text += fmt::format("an event at {}, which has counted {}\n", what.target, *what.counter);
    } else if (what.kind == WaitFor::kGroup) {
      text += fmt::format("product {} of all four warps of its group\n", what.target);
    } else {
      text += fmt::format("the consumer warps, of which {} have arrived\n", state.block->arrived);
    }
  }
  return text;
}

}  // namespace redline::emu
