// Timing loops on bound threads: what the peaks and the samples of the machine's state are made with.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"

namespace redline::lab {

/// Memory that is really there once it is written, on large pages where the system gives them.
class BandwidthBuffer {
 public:
  /// Halves the size until there is room, down to 16 MiB. out_of_memory: not even that.
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

/// Amount per second of some iterations.
struct LoopRates {
  double best = 0, median = 0;
};

/// What a rate divides by. Register loops share nothing, so each thread's own CPU time is the fairer clock: it does not
/// run while other programs do. Memory is shared, so only the time of day from the first start to the last end counts.
enum class TimedBy { kThread, kWall };

/// Runs `body(thread, iteration)`, which returns the amount of work that it did, `iterations` times on one thread for each CPU, all
/// starting a iteration together, between the table's worker_begin and worker_end. out_of_memory: no thread to be had.
Result<LoopRates> run_timed_loop(TimedBy timed_by, const std::vector<int>& cpus, int iterations,
                                 const CpuKernels& kernels, const std::function<double(int, int)>& body);

/// Operations of `peak` within about `seconds` of the calling thread: the body of a iteration.
double run_peak(PeakFn peak, double seconds);

/// Nanoseconds that one write takes to be seen by another core: half a round trip of one cache line between two
/// spinning threads, the least of `rounds` rounds, none longer than about 20 ms however busy the two cores are. 0: no
/// thread.
double ping_pong_ns(int cpu, int other_cpu, int rounds);
/// Microseconds from waking a sleeping thread on another core to its first instruction: the median of `rounds`. 0: no
/// thread.
double wake_up_us(int cpu, int other_cpu, int rounds);

}  // namespace redline::lab
