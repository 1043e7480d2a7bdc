// Scores a measured kernel and decides whether the measurement is valid.
#pragma once

#include <string>
#include <string_view>

#include "lab/kernels/kernel_timing.h"
#include "lab/machine/peaks.h"

namespace redline::lab {

/// Lower bound of a kernel's time: reading its bytes from memory or executing its operations, whichever takes longer.
struct KernelBound {
  double seconds = 0;  ///< 0: no measured peak applies
  std::string by;      ///< "read", "int8", ...; "" if there is no bound
};
/// `peaks` are those of the instruction set that serves the kernel, measured with as many threads. For data in the
/// caches only arithmetic is a bound.
KernelBound kernel_bound(const KernelCase::Cost& cost, const MachinePeaks& peaks, int threads, bool cached);

/// 1 / (1 + (seconds - bound) / (baseline - bound)): 1 at the bound, 1/2 at the baseline's speed (SOL-ExecBench,
/// NVIDIA/SOL-ExecBench 8d2237d, sol_score.py). If the baseline is not slower than the bound: 1 if the kernel is not
/// slower either, else 0. A score above 1 means a wrong bound or a wrong kernel.
double sol_score(double seconds, double baseline, double bound);

enum class KernelStatus {
  kPassed,
  kWrong,        ///< the output is wrong
  kQuarantined,  ///< faster than its bound: invalid until explained
  kUnsteady,     ///< the spread of the runs is too large
};
/// "passed", "wrong", "quarantined", "unsteady".
std::string_view kernel_status_name(KernelStatus status);

struct KernelVerdict {
  KernelStatus status = KernelStatus::kPassed;
  std::string why;  ///< "" when passed
};
/// Peaks are the best of several runs and repeat within 2 %; a kernel that is faster by more than that is impossible.
/// The fastest quarter of the runs must lie within 25 % of the median, or other programs used the machine.
KernelVerdict audit_kernel(const KernelTiming& timing, const KernelBound& bound);

/// SHA-256 over the sources of a kernel ("linear_q8.q4_0"): its family and everything that is included; "" for an
/// unknown kernel.
std::string_view kernel_sources_hash(std::string_view kernel);

}  // namespace redline::lab
