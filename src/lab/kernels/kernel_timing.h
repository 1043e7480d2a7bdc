// Checks a kernel on fresh inputs, then times it on inputs that are not in the caches.
#pragma once

#include "lab/kernels/kernel_case.h"

namespace redline::lab {

struct KernelBenchOptions {
  int threads = 1;
  /// Inputs and outputs that stay in the caches, instead of copies that rotate past them.
  bool cached = false;
  double seconds = 1;          ///< of timing; there are at least kMinIterations iterations, whatever they take
  int64_t seeds = 10;          ///< fresh inputs that the answer is checked on before
  int64_t rotation_bytes = 0;  ///< that copies take together; 0: what lies past the caches
};
inline constexpr int64_t kMinIterations = 5;

struct KernelTiming {
  KernelCheck check;  ///< the worst of all seeds; `elements` of all
  int64_t seeds = 0;
  std::string failure;          ///< "" or what was wrong; nothing else is then to be believed
  std::vector<double> seconds;  ///< of one run, sorted: a iteration of `runs_per_iteration` divided by it
  int64_t runs_per_iteration = 0, slots = 0;

  double median() const;
  /// (slowest - fastest) / median.
  double spread() const;
};

/// Weights (or rows of x) rotate over twice the last-level cache, 64 MiB at least and 512 MiB at most; inputs over
/// kInputVariants. Outputs are filled with NaNs before each iteration, written once in it, and compared bit by bit with the
/// checked answer after it. One thread is timed by its own CPU clock, several by the time from the last one's start to
/// the last one's end. out_of_memory: copies, or threads.
Result<KernelTiming> time_kernel(KernelCase& kernel_case, const CpuKernels& table, const KernelBenchOptions& options);

}  // namespace redline::lab
