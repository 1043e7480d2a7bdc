// Keeps the measured peaks of this machine in the cache folder: they are measured once and read by every later command.
#pragma once

#include <optional>

#include "machine/peaks.h"
#include "redline/engine_profile.h"

namespace redline {

/// Returns the kept peaks for this machine (its CPU, allowed cores and instruction set), this number of threads and
/// reads of about this size. nullopt: there are none, or caching is off.
std::optional<MachinePeaks> load_peaks(int threads, int64_t read_bytes);

/// Keeps `peaks`, measured with `options`, instead of earlier ones. Does nothing if caching is off or the folder is not
/// writable.
void store_peaks(const MachinePeaks& peaks, const PeakOptions& options);

/// Returns load_peaks(), or makes a quick measurement and keeps it. nullopt: caching is off, so each call would measure
/// again.
std::optional<MachinePeaks> peaks_of_machine(const CpuKernels& kernels, int threads, int64_t read_bytes);

/// Returns limits for EngineProfile::count_bounds() from peaks_of_machine(), or none if the peaks are unknown.
MachineLimits limits_of_machine(const MachineQuestion& question);

/// Measures the peaks again, raises `peaks` and keeps them. Called after a run that was faster than `peaks` allow,
/// because the machine was slower while they were measured.
void raise_peaks(const CpuKernels& kernels, int threads, int64_t read_bytes, MachinePeaks& peaks);

}  // namespace redline
