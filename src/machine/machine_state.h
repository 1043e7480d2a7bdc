// Samples the current performance of the machine. On virtual machines memory bandwidth and core-to-core latency change
// within seconds, and other tenants use a part, so every timing is recorded with the state before and after it.
#pragma once

#include <vector>

#include "machine/timed_loop.h"

namespace redline {

/// Medians of a sample of about 20 ms.
struct MachineState {
  double read_gb_s = 0;  ///< read bandwidth of all threads, from memory
  double f32_gop_s = 0;  ///< multiply-adds in registers, of all threads
  /// One-way latency of a cache line between the cores of the first and the last thread; 0 with one thread.
  double ping_pong_ns = 0;
};

/// Returns true if a timing between the two samples is doubtful: read bandwidth or arithmetic differs by more than 15
/// %, or latency by more than half. Samples of an undisturbed machine differ by 3 %.
bool differs(const MachineState& a, const MachineState& b);

/// Samples the machine on the first `threads` CPUs of cpu_order(); 0: on every core. Keeps its buffer between samples.
class MachineSampler {
 public:
  /// `kernels` must outlive the sampler. out_of_memory: the buffer cannot be allocated.
  static Result<MachineSampler> make(const CpuKernels& kernels, int threads);
  /// Takes a sample. out_of_memory: a thread cannot be created.
  Result<MachineState> sample();

 private:
  MachineSampler(const CpuKernels& kernels, std::vector<int> cpus, BandwidthBuffer buffer)
      : kernels_(&kernels), cpus_(std::move(cpus)), buffer_(std::move(buffer)) {}
  const CpuKernels* kernels_;
  std::vector<int> cpus_;
  BandwidthBuffer buffer_;
};

}  // namespace redline
