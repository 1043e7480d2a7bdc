// The measured peaks of this machine, kept in the cache folder: measured once, read by every later command.
#pragma once

#include <optional>

#include "lab/machine/peaks.h"
#include "redline/engine_profile.h"

namespace redline::lab {

/// The peaks that were kept for this machine (its CPU, allowed cores and instruction set), these threads and reads of
/// about this size. nullopt: none, or caching is off.
std::optional<MachinePeaks> load_peaks(int threads, int64_t read_bytes);

/// Keeps `peaks`, measured with `options`, in place of earlier ones. Does nothing when caching is off or the folder is
/// not writable.
void store_peaks(const MachinePeaks& peaks, const PeakOptions& options);

/// load_peaks, else a quick measurement that is kept. nullopt: caching is off, so that each call would measure again.
std::optional<MachinePeaks> peaks_of_machine(const CpuKernels& kernels, int threads, int64_t read_bytes);

/// For EngineProfile::count_bounds, from peaks_of_machine. No limits if the peaks are unknown.
MachineLimits limits_of_machine(const MachineQuestion& question);

/// Measures again, after a run that was faster than `peaks` allow: the machine was slower while they were measured.
/// Raises and keeps them.
void raise_peaks(const CpuKernels& kernels, int threads, int64_t read_bytes, MachinePeaks& peaks);

}  // namespace redline::lab
