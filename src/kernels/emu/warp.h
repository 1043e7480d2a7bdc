// Warps of kernel bodies on the emulated device: the interface of kernels/tiles/warp.h.
#pragma once

#include <atomic>
#include <chrono>
#include <cstring>

#include "kernels/emu/machine.h"
#include "kernels/tiles/block.h"
#include "kernels/tiles/lanes.h"

namespace redline::tiles {

class Warp {
 public:
  Warp(emu::Block& block, int index) : block_(block), machine_(*block.machine), index_(index) {}

  int index() const { return index_; }
  Lanes<int> lane() const { return lane_index(); }
  void begin_task() {}

  template <class T>
  T load_uniform(const T* from) {
    machine_.may_switch(block_, index_);
    return block_.log.read(from);
  }
  /// Loads from[index]. `index` is of int or int64_t.
  template <class T, class Index>
  Lanes<T> load(const T* from, const Lanes<Index>& index, const Lanes<bool>& mask = true) {
    machine_.may_switch(block_, index_);
    Lanes<T> r;
    for (int i = 0; i < kWarpLanes; ++i) r.v[i] = mask.v[i] ? block_.log.read(from + index.v[i]) : T{};
    return r;
  }
  template <class T, class Index>
  void store(T* to, const Lanes<Index>& index, const Lanes<T>& value, const Lanes<bool>& mask = true) {
    machine_.may_switch(block_, index_);
    for (int i = 0; i < kWarpLanes; ++i)
      if (mask.v[i]) block_.log.write(to + index.v[i], value.v[i]);
  }

  /// Loads from shared memory. `offset` is in bytes, a multiple of sizeof(T).
  template <class T>
  Lanes<T> load_shared(const Lanes<uint32_t>& offset) {
    Lanes<T> r;
    for (int i = 0; i < kWarpLanes; ++i) std::memcpy(&r.v[i], shared(offset.v[i], sizeof(T)), sizeof(T));
    return r;
  }
  uint32_t load_shared_uniform(uint32_t offset) {
    uint32_t value = 0;
    std::memcpy(&value, shared(offset, sizeof(value)), sizeof(value));
    return value;
  }
  void load_shared4(const Lanes<uint32_t>& offset, Lanes<float> (&out)[4]) {
    for (int i = 0; i < kWarpLanes; ++i) {
      float four[4];
      std::memcpy(four, shared(offset.v[i], sizeof(four)), sizeof(four));
      for (int k = 0; k < 4; ++k) out[k].v[i] = four[k];
    }
  }
  template <class T>
  void store_shared(const Lanes<uint32_t>& offset, const Lanes<T>& value, const Lanes<bool>& mask = true) {
    block_.unpublished[static_cast<size_t>(index_)] = 1;
    for (int i = 0; i < kWarpLanes; ++i)
      if (mask.v[i]) std::memcpy(shared(offset.v[i], sizeof(T)), &value.v[i], sizeof(T));
  }

  template <class T>
  Lanes<T> shuffle_xor(const Lanes<T>& x, int distance) {
    Lanes<T> r;
    for (int i = 0; i < kWarpLanes; ++i) r.v[i] = x.v[i ^ distance];
    return r;
  }
  uint32_t ballot(const Lanes<bool>& x) {
    uint32_t bits = 0;
    for (int i = 0; i < kWarpLanes; ++i) bits |= static_cast<uint32_t>(x.v[i]) << i;
    return bits;
  }
  /// Returns the value of one lane to all lanes.
  template <class T>
  T broadcast(const Lanes<T>& x, int lane) {
    return x.v[lane];
  }

  void consumer_sync();
  void barrier_init(int barrier, int count) {
    block_.barriers[static_cast<size_t>(barrier)].count = count;
    block_.barriers[static_cast<size_t>(barrier)].pending = count;
  }
  void barrier_arrive(int barrier) {
    machine_.may_switch(block_, index_);
    machine_.arrive(block_, barrier);
  }
  void barrier_expect(int barrier, int bytes) { machine_.expect_bytes(block_, barrier, bytes); }
  void barrier_wait(int barrier, uint32_t parity);
  void bulk_copy(uint32_t to, const void* from, int bytes, int barrier) {
    machine_.may_switch(block_, index_);
    machine_.copy_later(block_, to, from, bytes, barrier);
  }

  bool has_bulk_copies() const { return machine_.has_bulk_copies(); }
  void async_copy(uint32_t to, const void* from, int bytes) {
    machine_.may_switch(block_, index_);
    machine_.copy_by_lanes(block_, index_, to, from, bytes);
  }
  void async_arrive(int barrier) { machine_.arrive_later(block_, index_, barrier, kWarpLanes); }
  int ring_stages() const { return ring_stages_of(static_cast<int>(block_.shared.size())); }

  uint32_t shared_address(uint32_t offset) const { return offset; }
  void publish_shared() { block_.unpublished[static_cast<size_t>(index_)] = 0; }
  /// Issues c (32 registers) = a b, or c += a b. The product is done after group_wait(); until then the registers hold
  /// NaNs.
  void group_multiply(const Lanes<uint32_t> (&a)[4], uint64_t descriptor, Lanes<float>* const* c, bool accumulate);
  /// Issues an int8 product with int32 sums. Until group_wait() the registers hold numbers that no sum of a row has.
  void group_multiply(const Lanes<uint32_t> (&a)[4], uint64_t descriptor, Lanes<int32_t>* const* c, bool accumulate);
  void group_wait();

  /// Sets a time limit for waits, which passes when no thread can run.
  void watch(HangReport* report, uint64_t limit_ns, int block) {
    report_ = report;
    block_number_ = static_cast<uint32_t>(block);
    if (report != nullptr && limit_ns > 0) machine_.watch();
  }
  void at_task(uint32_t task) { task_ = task; }
  bool is_abandoned() const { return abandoned_; }
  /// Records a hang. The first report is kept, since blocks of a launch run on several threads.
  void report_hang(const HangReport& what);
  uint64_t event_wait(const uint64_t* counter, uint64_t target) {
    machine_.wait(block_, index_, {.kind = emu::WaitFor::kEvent, .counter = counter, .target = target});
    abandoned_ = *counter < target;
    return *counter;
  }
  uint64_t draw(uint64_t* counter) {
    machine_.may_switch(block_, index_);
    if (machine_.plants(emu::Fault::kLostTicket)) ++*counter;
    return (*counter)++;
  }
  /// Returns the time in nanoseconds.
  uint64_t now() const {
    return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
  }
  void stamp(uint64_t* to) { block_.log.write(to, now()); }
  /// Sets *to to the larger of *to and `value`, atomically.
  void raise(uint64_t* to, uint64_t value) {
    std::atomic_ref<uint64_t> largest(*to);
    for (uint64_t seen = largest.load(); seen < value && !largest.compare_exchange_weak(seen, value);) continue;
  }
  void event_release(uint64_t* counter) {
    machine_.may_switch(block_, index_);
    machine_.release(block_, counter);
  }

 private:
  uint8_t* shared(uint32_t offset, size_t bytes) {
    if (offset + bytes <= block_.shared.size()) return block_.shared.data() + offset;
    machine_.fail(
        internal("emulated device: an access at {} of {} bytes of shared memory", offset, block_.shared.size()));
    return block_.shared.data();
  }

  struct GroupProduct {
    Lanes<uint32_t> a[4];
    uint64_t descriptor;
    Lanes<float>* c[32];
    Lanes<int32_t>* sums[32];  ///< sums of an int8 product; c is null then
    bool accumulate;
  };
  /// Issues a product whose sums are set.
  void issue(GroupProduct product, const Lanes<uint32_t> (&a)[4], uint64_t descriptor, bool accumulate);
  void multiply(const GroupProduct& product);
  void multiply_i8(const GroupProduct& product);

  emu::Block& block_;
  emu::Machine& machine_;
  int index_;
  std::vector<GroupProduct> issued_;
  // Values that the result registers had before the products were issued.
  std::vector<std::pair<Lanes<float>*, Lanes<float>>> sums_;
  std::vector<std::pair<Lanes<int32_t>*, Lanes<int32_t>>> integer_sums_;
  HangReport* report_ = nullptr;
  uint32_t block_number_ = 0, task_ = 0;
  bool abandoned_ = false;
};

}  // namespace redline::tiles
