// Timed loops on pinned threads, which measure peaks and machine states.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"

namespace redline {

/// Anonymous memory, on huge pages where the system provides them.
class BandwidthBuffer {
 public:
  /// Allocates a buffer, halving the size until the allocation succeeds, down to 16 MiB. out_of_memory: that size also
  /// fails.
  static Result<BandwidthBuffer> allocate(int64_t bytes);
  BandwidthBuffer(BandwidthBuffer&& other) noexcept : data_(other.data_), bytes_(other.bytes_) {
    other.data_ = nullptr;
  }
  BandwidthBuffer& operator=(BandwidthBuffer&&) = delete;
  ~BandwidthBuffer();
  char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  BandwidthBuffer(char* data, int64_t bytes) : data_(data), bytes_(bytes) {}
  char* data_;
  int64_t bytes_;
};

/// Work per second over the iterations of a loop.
struct LoopRates {
  double best = 0, median = 0;
};

/// The clock of a rate. Register loops share nothing and use each thread's CPU time, which excludes preemption. Memory
/// is shared, so memory loops use wall time from the first start to the last end.
enum class TimedBy { kThread, kWall };

/// Runs `body(thread, iteration)`, which returns the amount of work done, `iterations` times on one thread per CPU,
/// between the table's worker_begin and worker_end. All threads start an iteration together. out_of_memory: a thread
/// could not be started.
Result<LoopRates> run_timed_loop(TimedBy timed_by, const std::vector<int>& cpus, int iterations,
                                 const CpuKernels& kernels, const std::function<double(int, int)>& body);

/// Runs `peak` for about `seconds` and returns its operations; used as the body of an iteration.
double run_peak(PeakFn peak, double seconds);

/// Returns the latency in nanoseconds until another core sees a write: half a round trip of one cache line between two
/// spinning threads, the minimum of `rounds` rounds, each at most about 20 ms even if the cores are busy. 0: a thread
/// cannot be created.
double ping_pong_ns(int cpu, int other_cpu, int rounds);
/// Returns the microseconds from waking a sleeping thread on another core to its first instruction, as the median of
/// `rounds`. 0: a thread cannot be created.
double wake_up_us(int cpu, int other_cpu, int rounds);

}  // namespace redline
