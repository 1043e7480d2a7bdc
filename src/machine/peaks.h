// The measured peaks of this machine, which bound every reported speed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"

namespace redline {

/// One peak, in `unit` per second.
struct Peak {
  std::string name;  ///< "read", "copy", "l2 read"; or the operands of multiply-adds: "f32", "f16", "bf16", "int8"
  std::string isa;   ///< instruction set of cpu_isas() with which it was measured
  std::string instruction;  ///< "vpdpbusd zmm"; "" for memory
  std::string unit;         ///< "GB/s" (10^9 bytes) or "GOP/s" (10^9 operations, 2 for a multiply-add)
  double per_thread = 0;    ///< best run of one thread alone
  double all = 0;           ///< best run of all threads together
  double spread = 0;        ///< (best - median) / best of the runs of all threads: how busy the machine was
};

struct MachinePeaks {
  std::string isa;  ///< richest instruction set of the table that was measured
  int threads = 0;
  double seconds = 0;  ///< duration of the measurement
  /// Bytes that the measurement of "read" reads repeatedly. 0: more than the caches hold, so that the peak is that of
  /// memory.
  int64_t read_bytes = 0;
  std::vector<Peak> rows;
  /// Latency of a cache line between spinning threads, and wake-up time of a sleeping thread, from the first core to
  /// each of up to 8 others, one way. 0 if there is only one core.
  double ping_pong_ns = 0, ping_pong_worst_ns = 0, wake_up_us = 0;

  /// Returns the best row of this name over all instruction sets; nullptr: none was measured.
  const Peak* find(std::string_view name) const;
  /// Returns the row of one instruction set.
  const Peak* find(std::string_view name, std::string_view isa) const;
};

struct PeakOptions {
  /// Takes about 0.5 s instead of 2 s, with a smaller buffer and fewer, shorter runs.
  bool quick = false;
  /// Measures multiply-adds of every instruction set up to the richest; otherwise only of those that the kernel table
  /// uses.
  bool all_sets = false;
  /// Threads for the "all" figures, placed on separate cores before SMT siblings; 0: one per available core. The
  /// maximum is one per hardware thread.
  int threads = 0;
  /// Bytes that the measurement of "read" reads repeatedly: those that one step of a model reads. A model that fits
  /// into a cache is bounded by the cache, not by memory. 0, or more than the buffer: the whole buffer.
  int64_t read_bytes = 0;
};

/// Returns true if a bench with `repeat` runs of a row (nullopt: the usual number) within `seconds` should use a quick
/// measurement of peaks. A bench of one or two runs, or of one second, should not wait longer for peaks than for rows.
inline bool quick_peaks_do(std::optional<int64_t> repeat, double seconds) {
  return (repeat && *repeat <= 2) || seconds <= 1;
}

/// Measures on new threads, each pinned to one allowed CPU: reading and copying a buffer of 256 MiB (128 quick, more
/// from 32 threads on), reading half of a core's L2 cache, and multiply-adds in registers. The result is the best of
/// several short runs, because other work on the machine can only slow them down. If the last-level cache is larger
/// than the buffer, "read" exceeds the memory bandwidth.
/// out_of_memory: the buffer or a thread cannot be created.
Result<MachinePeaks> measure_peaks(const CpuKernels& kernels, const PeakOptions& options);

}  // namespace redline
