// Warps of kernel bodies on NVIDIA GPUs (sm_80 and newer): the interface of kernels/tiles/warp.h in PTX. Code for GPUs
// before sm_90 avoids their missing features: bulk copies, and waits that suspend the thread.
#pragma once

#include "kernels/tiles/lanes.h"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define REDLINE_HAS_SM90 false
#define REDLINE_WAIT_PARITY "mbarrier.test_wait.parity.shared.b64"
#else
#define REDLINE_HAS_SM90 true
#define REDLINE_WAIT_PARITY "mbarrier.try_wait.parity.shared.b64"
#endif

namespace redline::tiles {

class Warp {
 public:
  /// `shared`: shared memory of the block, aligned to 1024; nullptr: the kernel uses none.
  TILE_FN Warp(uint8_t* shared, int index)
      : shared_(shared), index_(index), lane_(static_cast<int>(threadIdx.x % kWarpLanes)) {}

  TILE_FN int index() const { return index_; }
  TILE_FN Lanes<int> lane() const { return lane_; }

  /// Begins a new task of a persistent step: values that kernels derive from the numbers of lane and warp are computed
  /// again. The compilers would otherwise keep all of them from task to task, in more registers than there are. The
  /// shuffle prevents that, because compilers know nothing of its result.
  TILE_FN void begin_task() {
    lane_ = __shfl_sync(0xffffffffu, lane_, lane_);
    index_ = __shfl_sync(0xffffffffu, index_, 0);
  }

  // Loads are plain ones, because a persistent step reads values that other blocks of the same launch have written.
  template <class T>
  TILE_FN T load_uniform(const T* from) {
    return *from;
  }
  template <class T, class Index>
  TILE_FN T load(const T* from, Index index, bool mask = true) {
    return mask ? from[index] : T{};
  }
  template <class T, class Index>
  TILE_FN void store(T* to, Index index, T value, bool mask = true) {
    if (mask) to[index] = value;
  }

  template <class T>
  TILE_FN T load_shared(uint32_t offset) {
    return *reinterpret_cast<const T*>(shared_ + offset);
  }
  TILE_FN void load_shared4(uint32_t offset, float (&out)[4]) {
    const float4 four = *reinterpret_cast<const float4*>(shared_ + offset);
    out[0] = four.x;
    out[1] = four.y;
    out[2] = four.z;
    out[3] = four.w;
  }
  TILE_FN uint32_t load_shared_uniform(uint32_t offset) { return load_shared<uint32_t>(offset); }
  template <class T>
  TILE_FN void store_shared(uint32_t offset, T value, bool mask = true) {
    if (mask) *reinterpret_cast<T*>(shared_ + offset) = value;
  }

  template <class T>
  TILE_FN T shuffle_xor(T x, int distance) {
    return __shfl_xor_sync(0xffffffffu, x, distance);
  }
  TILE_FN uint32_t ballot(bool x) { return __ballot_sync(0xffffffffu, x); }
  template <class T>
  TILE_FN T broadcast(T x, int lane) {
    return __shfl_sync(0xffffffffu, x, lane);
  }

  TILE_FN void consumer_sync() { asm volatile("bar.sync 1, %0;" ::"n"(kConsumerWarps * kWarpLanes) : "memory"); }

  TILE_FN void barrier_init(int barrier, int count) {
    if (is_first()) asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address(barrier)), "r"(count) : "memory");
  }
  TILE_FN void barrier_arrive(int barrier) {
    __syncwarp();  // all lanes have finished their reads
    [[maybe_unused]] uint64_t state;
    if (is_first())
      asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(address(barrier)) : "memory");
  }
  TILE_FN void barrier_expect(int barrier, int bytes) {
#if REDLINE_HAS_SM90
    if (is_first())
      asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(address(barrier)), "r"(bytes) : "memory");
#endif
  }
  TILE_FN void barrier_wait(int barrier, uint32_t parity) {
    WaitTime waited;
    for (uint32_t polls = 1;; ++polls) {
      uint32_t done = 0;
      asm volatile(
          "{\n"
          ".reg .pred done;\n" REDLINE_WAIT_PARITY
          " done, [%1], %2;\n"
          "selp.u32 %0, 1, 0, done;\n"
          "}\n"
          : "=r"(done)
          : "r"(address(barrier)), "r"(parity)
          : "memory");
      if (done != 0) return;
      // This limit is longer than that of event waits. Copies depend only on the GPU's memory; a loader waits for
      // consumers, which wait for events, and those waits should be reported first.
      if (polls % 1024 == 0 && report_ != nullptr && is_late(waited, limit_ns_ + limit_ns_ / 4)) {
        abandoned_ = true;
        report_hang(
            {HangReport::kBarrier, blockIdx.x, task_, static_cast<uint32_t>(barrier), static_cast<uint64_t>(index_)});
        return;
      }
    }
  }
  TILE_FN static constexpr bool has_bulk_copies() { return REDLINE_HAS_SM90; }
  TILE_FN void bulk_copy(uint32_t to, const void* from, int bytes, int barrier) {
#if REDLINE_HAS_SM90
    if (is_first())
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                       static_cast<uint32_t>(__cvta_generic_to_shared(shared_ + to))),
                   "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(address(barrier))
                   : "memory");
#endif
  }
  TILE_FN void async_copy(uint32_t to, const void* from, int bytes) {
    const auto target = static_cast<uint32_t>(__cvta_generic_to_shared(shared_ + to));
    const size_t source = __cvta_generic_to_global(from);
    for (int at = lane_ * 16; at < bytes; at += kWarpLanes * 16)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(target + static_cast<uint32_t>(at)),
                   "l"(source + static_cast<size_t>(at))
                   : "memory");
  }
  TILE_FN void async_arrive(int barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(address(barrier)) : "memory");
  }
  TILE_FN int ring_stages() const {
#if REDLINE_HAS_SM90
    return kMaxRingStages;
#else
    int bytes;
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
    return ring_stages_of(bytes);
#endif
  }

  TILE_FN uint32_t shared_address(uint32_t offset) const {
    return static_cast<uint32_t>(__cvta_generic_to_shared(shared_ + offset));
  }
  TILE_FN void publish_shared() {
#if REDLINE_HAS_SM90
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
  }

  /// Sets a time limit: a wait that takes longer than `limit_ns` is aborted. `report` nullptr: no limit.
  TILE_FN void watch(HangReport* report, uint64_t limit_ns, int) {
    report_ = report;
    limit_ns_ = limit_ns;
  }
  TILE_FN void at_task(uint32_t task) { task_ = task; }
  TILE_FN bool is_abandoned() const { return abandoned_; }
  /// Records a hang. The first report is kept.
  TILE_FN void report_hang(const HangReport& what) {
    if (!is_first() || atomicCAS(&report_->kind, uint32_t{HangReport::kNothing}, what.kind) != 0) return;
    report_->block = what.block;
    report_->task = what.task;
    report_->wait = what.wait;
    report_->count = what.count;
  }

  /// Waits for a counter. Polls without ordering, so that the first-level cache is not invalidated each time, and
  /// acquires once at the end. Returns the observed count.
  TILE_FN uint64_t event_wait(const uint64_t* counter, uint64_t target) {
    uint64_t count = 0;
    WaitTime waited;
    uint32_t gives_up = 0;
    if (is_first()) {
      for (uint32_t polls = 1;; ++polls) {
        asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(count) : "l"(__cvta_generic_to_global(counter)));
        if (count >= target) break;
        if (polls % 256 == 0 && is_late(waited, limit_ns_)) {
          gives_up = 1;
          break;
        }
        __nanosleep(64);
      }
      asm volatile("ld.acquire.gpu.global.u64 %0, [%1];"
                   : "=l"(count)
                   : "l"(__cvta_generic_to_global(counter))
                   : "memory");
    }
    if (__shfl_sync(0xffffffffu, gives_up, 0) != 0) abandoned_ = true;
    __syncwarp();  // a shuffle orders no memory; this makes lane 0's acquire valid for all lanes
    return count;
  }
  /// Draws the next number of a counter. Does not order memory: the events of the task order the data of the drawn
  /// tile.
  TILE_FN uint64_t draw(uint64_t* counter) {
    uint64_t number = 0;
    if (is_first())
      asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], 1;"
                   : "=l"(number)
                   : "l"(__cvta_generic_to_global(counter))
                   : "memory");
    return __shfl_sync(0xffffffffu, number, 0);
  }
  /// Returns the time in nanoseconds, of one clock for all multiprocessors.
  TILE_FN uint64_t now() const {
    uint64_t ns = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
  }
  TILE_FN void stamp(uint64_t* to) {
    if (is_first()) *to = now();
  }
  TILE_FN void raise(uint64_t* to, uint64_t value) {
    if (is_first())
      asm volatile("red.relaxed.gpu.global.max.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(to)), "l"(value)
                   : "memory");
  }
  TILE_FN void event_release(uint64_t* counter) {
    if (is_first())
      asm volatile("red.release.gpu.global.add.u64 [%0], 1;" ::"l"(__cvta_generic_to_global(counter)) : "memory");
  }

 private:
  /// Returns true if another warp has timed out, or this wait has.
  TILE_FN bool is_late(WaitTime& waited, uint64_t limit_ns) const {
    uint32_t kind = 0;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(kind) : "l"(__cvta_generic_to_global(&report_->kind)));
    return kind != 0 || waited.exceeds(now(), limit_ns);
  }
  TILE_FN bool is_first() const { return lane_ == 0; }
  TILE_FN uint32_t address(int barrier) const {
    return static_cast<uint32_t>(__cvta_generic_to_shared(shared_ + kBarrierOffset + 8 * barrier));
  }
  uint8_t* shared_;
  int index_, lane_;
  HangReport* report_ = nullptr;
  uint64_t limit_ns_ = 0;
  uint32_t task_ = 0;
  bool abandoned_ = false;
};

}  // namespace redline::tiles
