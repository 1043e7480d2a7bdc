// Which hardware threads workers run on, and in which order.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace redline {

/// Hardware threads that this process may use. The first `cores` are each on a core of their own, neighbours in caches
/// and memory beside each other; their siblings on the same cores follow in the same order.
struct CpuOrder {
  std::vector<int> cpus;
  int cores = 0;
};

/// Of this machine, read once (hwloc); where its topology cannot be read every allowed hardware thread counts as a
/// core.
const CpuOrder& cpu_order();
/// Of a machine described to hwloc ("numa:2 core:4 pu:2"), restricted to `allowed` (empty: all of it). For tests.
Result<CpuOrder> synthetic_cpu_order(const std::string& description, const std::vector<int>& allowed);

/// How many workers to start: what was asked for (0: the setting; that 0 too: every core this process may use).
/// invalid_argument: outside [1, 1024].
Result<int> choose_threads(int64_t asked, int64_t setting);

/// Hardware threads in this process's affinity mask, ascending.
std::vector<int> allowed_cpus();
/// Binds the calling thread to one hardware thread. A refusal only costs speed.
void pin_to_cpu(int cpu);

}  // namespace redline
