// Checks a kernel on new inputs, then times it on inputs that are not in the caches.
#pragma once

#include "lab/kernels/kernel_case.h"

namespace redline::lab {

struct KernelBenchOptions {
  int threads = 1;
  /// Keeps inputs and outputs in the caches, instead of rotating copies past them.
  bool cached = false;
  double seconds = 1;          ///< time for measuring; at least kMinIterations iterations are run
  int64_t seeds = 10;          ///< number of inputs on which the result is checked first
  int64_t rotation_bytes = 0;  ///< total bytes of the copies; 0: more than the caches
};
inline constexpr int64_t kMinIterations = 5;

struct KernelTiming {
  KernelCheck check;  ///< the worst result over all seeds; `elements` is the sum over all seeds
  int64_t seeds = 0;
  std::string failure;          ///< why the result is invalid; "" if it is valid
  std::vector<double> seconds;  ///< times of one run, sorted: an iteration's time divided by runs_per_iteration
  int64_t runs_per_iteration = 0, slots = 0;

  double median() const;
  /// Returns (slowest - fastest) / median.
  double spread() const;
};

/// Checks and times a kernel. Weights (or rows of x) rotate over twice the last-level cache, at least 64 MiB and at
/// most 512 MiB; inputs over kInputVariants. Outputs are filled with NaNs before each iteration and compared bit by bit
/// with the checked result after it. One thread is timed by its CPU clock, several from the last start to the last end.
/// out_of_memory: copies or threads cannot be created.
Result<KernelTiming> time_kernel(KernelCase& kernel_case, const CpuKernels& table, const KernelBenchOptions& options);

}  // namespace redline::lab
