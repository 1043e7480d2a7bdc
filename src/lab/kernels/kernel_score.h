// Scores a measured kernel and decides whether the measurement is valid.
#pragma once

#include <string>
#include <string_view>

#include "lab/kernels/kernel_timing.h"
#include "machine/peaks.h"

namespace redline::lab {

/// Lower bound of a kernel's time: reading its bytes from memory or executing its operations, whichever takes longer.
struct KernelBound {
  double seconds = 0;  ///< 0: no measured peak applies
  std::string by;      ///< "read", "int8", ...; "" if there is no bound
};
/// Returns the bound of a kernel. `peaks` are those of the kernel's instruction set, measured with `threads` threads.
/// For data in the caches only arithmetic is a bound.
KernelBound kernel_bound(const KernelCase::Cost& cost, const MachinePeaks& peaks, int threads, bool cached);

/// Returns 1 / (1 + (seconds - bound) / (baseline - bound)): 1 at the bound, 1/2 at the baseline's speed
/// (SOL-ExecBench, NVIDIA/SOL-ExecBench 8d2237d, sol_score.py). If the baseline is not slower than the bound: 1 if the
/// kernel is not slower either, else 0. A score above 1 means a wrong bound or a wrong kernel.
double sol_score(double seconds, double baseline, double bound);

enum class KernelStatus {
  kPassed,
  kWrong,        ///< the output is wrong
  kQuarantined,  ///< faster than its bound: invalid until explained
  kUnsteady,     ///< the spread of the runs is too large
};
/// Returns "passed", "wrong", "quarantined" or "unsteady".
std::string_view kernel_status_name(KernelStatus status);

struct KernelVerdict {
  KernelStatus status = KernelStatus::kPassed;
  std::string why;  ///< "" if passed
};
/// Judges a timing. Peaks are the best of several runs and repeat within 2 %, so a kernel cannot be faster by more than
/// that. The fastest quarter of the runs must be within 25 % of the median; otherwise other programs used the machine.
KernelVerdict audit_kernel(const KernelTiming& timing, const KernelBound& bound);

/// Returns the SHA-256 of the sources of a kernel ("linear_q8.q4_0"): its family and everything that it includes; ""
/// for an unknown kernel.
std::string_view kernel_sources_hash(std::string_view kernel);

}  // namespace redline::lab
