// Timing loops on bound threads: what the ceilings and the samples of the machine's state are made with.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"

namespace redline {

/// Memory that is really there once it is written, on large pages where the system gives them.
class LapBuffer {
 public:
  /// Halves the size until there is room, down to 16 MiB. out_of_memory: not even that.
  static Result<LapBuffer> allocate(int64_t bytes);
  LapBuffer(LapBuffer&& other) noexcept : data_(other.data_), bytes_(other.bytes_) { other.data_ = nullptr; }
  LapBuffer& operator=(LapBuffer&&) = delete;
  ~LapBuffer();
  char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  LapBuffer(char* data, int64_t bytes) : data_(data), bytes_(bytes) {}
  char* data_;
  int64_t bytes_;
};

/// Amount per second of some laps.
struct LapRates {
  double best = 0, median = 0;
};

/// What a rate divides by. Register loops share nothing, so each thread's own CPU time is the fairer clock: it does not
/// run while other programs do. Memory is shared, so only the time of day from the first start to the last end counts.
enum class TimedBy { kThread, kWall };

/// Runs `body(thread, lap)`, which returns the amount of work that it did, `laps` times on one thread for each CPU, all
/// starting a lap together, between the table's worker_begin and worker_end. out_of_memory: no thread to be had.
Result<LapRates> run_laps(TimedBy timed_by, const std::vector<int>& cpus, int laps, const CpuKernels& kernels,
                          const std::function<double(int, int)>& body);

/// Operations of `peak` within about `seconds` of the calling thread: the body of a lap.
double run_peak(PeakFn peak, double seconds);

/// Nanoseconds that one write takes to be seen by another core: half a round trip of one cache line between two
/// spinning threads, the least of `rounds` rounds, none longer than about 20 ms however busy the two cores are. 0: no
/// thread.
double ping_pong_ns(int cpu, int other_cpu, int rounds);
/// Microseconds from waking a sleeping thread on another core to its first instruction: the median of `rounds`. 0: no
/// thread.
double wake_up_us(int cpu, int other_cpu, int rounds);

}  // namespace redline
