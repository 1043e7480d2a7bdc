// The hardware threads that workers run on, their order, and the caches of this machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace redline {

/// The hardware threads available to this process. The first `cores` are on distinct cores, ordered so that adjacent
/// ones share caches and memory; their SMT siblings follow in the same order.
struct CpuOrder {
  std::vector<int> cpus;
  int cores = 0;
};

/// Returns the CPU order of this machine, read once with hwloc. If the topology cannot be read, every allowed hardware
/// thread counts as a core.
const CpuOrder& cpu_order();
/// Returns the CPU order of a synthetic hwloc topology ("numa:2 core:4 pu:2"), restricted to `allowed` (empty: all).
/// For tests.
Result<CpuOrder> synthetic_cpu_order(const std::string& description, const std::vector<int>& allowed);

/// Size in bytes of one data or unified cache at each level. If the cores have caches of different sizes, the size of
/// the largest. 0: unknown or absent.
struct CacheSizes {
  int64_t l1d = 0;
  int64_t l2 = 0;
  int64_t l3 = 0;

  int64_t largest() const { return std::max({l1d, l2, l3}); }
  /// Returns the known sizes by display name: L1d, L2, L3.
  std::vector<std::pair<std::string, int64_t>> named() const;
};
/// Returns the caches of this machine, read once with hwloc. Does not use sysconf(): glibc before 2.38 multiplies the
/// last level of AMD processors by the number of threads that may share it.
const CacheSizes& cache_sizes();
/// Returns the caches of a synthetic hwloc topology ("l3:1(size=8388608) core:2"). For tests.
Result<CacheSizes> synthetic_cache_sizes(const std::string& description);

/// Returns the number of workers to start: `requested`, or `setting` when it is 0, or every available core when both
/// are 0. invalid_argument: outside [1, 1024].
Result<int> choose_threads(int64_t requested, int64_t setting);

/// Returns the hardware threads in this process's affinity mask, ascending.
std::vector<int> allowed_cpus();
/// Binds the calling thread to one hardware thread. Failure is ignored: it only affects speed.
void pin_to_cpu(int cpu);

}  // namespace redline
