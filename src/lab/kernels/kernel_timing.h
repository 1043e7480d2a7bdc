// Checks a kernel on new inputs, then times it on inputs that are not in the caches.
#pragma once

#include "lab/kernels/kernel_case.h"

namespace redline::lab {

struct KernelBenchOptions {
  int threads = 1;
  /// Inputs and outputs that stay in the caches, instead of copies that rotate past them.
  bool cached = false;
  double seconds = 1;          ///< of timing; there are at least kMinIterations iterations, whatever they take
  int64_t seeds = 10;          ///< number of inputs on which the result is checked first
  int64_t rotation_bytes = 0;  ///< total bytes of the copies; 0: more than the caches hold
};
inline constexpr int64_t kMinIterations = 5;

struct KernelTiming {
  KernelCheck check;  ///< the worst of all seeds; `elements` of all
  int64_t seeds = 0;
  std::string failure;          ///< what was wrong, which invalidates the rest; "" when nothing was
  std::vector<double> seconds;  ///< of one run, sorted: an iteration's divided by runs_per_iteration
  int64_t runs_per_iteration = 0, slots = 0;

  double median() const;
  /// (slowest - fastest) / median.
  double spread() const;
};

/// Weights (or rows of x) rotate over twice the last-level cache, 64 MiB at least and 512 MiB at most; inputs over
/// kInputVariants. Before each iteration outputs are filled with NaNs; after it they are compared bit by bit with the
/// checked result. One thread is timed by its own CPU clock, several from the last start to the last end.
/// out_of_memory: copies, or threads.
Result<KernelTiming> time_kernel(KernelCase& kernel_case, const CpuKernels& table, const KernelBenchOptions& options);

}  // namespace redline::lab
