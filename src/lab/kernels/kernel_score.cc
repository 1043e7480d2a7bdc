#include "lab/kernels/kernel_score.h"

#include <kernel_sources.h>
#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace redline::lab {

KernelBound kernel_bound(const KernelCase::Cost& cost, const MachinePeaks& peaks, int threads, bool cached) {
  const auto rate = [&](std::string_view name) {
    const Peak* peak = peaks.find(name);
    return peak == nullptr ? 0.0 : (threads == 1 ? peak->per_thread : peak->all) * 1e9;
  };
  KernelBound bound;
  if (const double read = cached ? 0 : rate("read"); read > 0) bound = {cost.from_memory / read, "read"};
  std::string_view fastest;
  for (std::string_view names = cost.peak; !names.empty();) {
    const std::string_view name = names.substr(0, names.find(' '));
    names.remove_prefix(std::min(names.size(), name.size() + 1));
    if (fastest.empty() || rate(name) > rate(fastest)) fastest = name;
  }
  const double peak = fastest.empty() ? 0 : rate(fastest);
  if (peak > 0 && cost.operations / peak > bound.seconds) bound = {cost.operations / peak, std::string(fastest)};
  return bound;
}

double sol_score(double seconds, double baseline, double bound) {
  if (baseline <= bound) return seconds <= bound ? 1 : 0;
  return 1 / (1 + (seconds - bound) / (baseline - bound));
}

std::string_view kernel_status_name(KernelStatus status) {
  constexpr std::string_view kNames[] = {"passed", "wrong", "quarantined", "unsteady"};
  return kNames[static_cast<int>(status)];
}

KernelVerdict audit_kernel(const KernelTiming& timing, const KernelBound& bound) {
  if (!timing.failure.empty()) return {KernelStatus::kWrong, timing.failure};
  if (timing.seconds.empty()) return {KernelStatus::kWrong, "nothing was timed"};
  const double fastest = timing.seconds.front(), quarter = timing.seconds[timing.seconds.size() / 4];
  if (fastest < 0.98 * bound.seconds)
    return {KernelStatus::kQuarantined,
            fmt::format("{:.3g} s is faster than the bound of {:.3g} s by {}", fastest, bound.seconds, bound.by)};
  if (!(timing.median() <= 1.25 * quarter))
    return {KernelStatus::kUnsteady, fmt::format("the median of {:.3g} s is {:.0f} % above the fastest quarter",
                                                 timing.median(), 100 * (timing.median() / quarter - 1))};
  return {};
}

std::string_view kernel_sources_hash(std::string_view kernel) {
  std::string_view family = kernel.substr(0, kernel.find('.'));
  // The families are those of cmake/KernelSources.cmake.
  if (family.starts_with("linear_") || family.starts_with("prepare_")) family = "linear";
  if (family.starts_with("attention_") || family == "kv_append") family = "attention";
  if (family.starts_with("conv")) family = "convolution";
  for (const KernelSources& sources : kKernelSources)
    if (sources.family == family) return sources.sha256;
  return "";
}

}  // namespace redline::lab
