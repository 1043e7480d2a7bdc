#include "machine/peaks.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "base/elapsed.h"
#include "base/topology.h"
#include "machine/timed_loop.h"

namespace redline {
namespace {

using Clock = std::chrono::steady_clock;

/// Sizes and durations of the measurements.
struct Plan {
  std::vector<int> cpus;
  int passes_one, passes_all;  ///< number of passes over the buffer, for one thread and for all
  int64_t buffer_bytes;
  int iterations_one, iterations_all;  ///< number of iterations of a register loop, for one thread and for all
  double iteration_seconds;
  int64_t read_bytes = 0;  ///< bytes of the buffer that are read
};
/// Iterations per pass over the buffer. An iteration of 1 to 2 ms is likely to run undisturbed on a busy machine.
constexpr int kIterationsPerPass = 8;

Peak make_peak(const char* name, const char* unit, const LoopRates& one, const LoopRates& all) {
  // On a busy machine every run of all threads may have been disturbed, but all threads together are no slower than one
  // alone.
  const double best = std::max(one.best, all.best);
  Peak row;
  row.name = name;
  row.unit = unit;
  row.per_thread = one.best / 1e9;
  row.all = best / 1e9;
  row.spread = best > 0 ? (best - std::min(best, all.median)) / best : 0;
  return row;
}

Status measure_memory(const Plan& plan, const CpuKernels& kernels, std::vector<Peak>& rows) {
  REDLINE_ASSIGN(const BandwidthBuffer buffer, BandwidthBuffer::allocate(plan.buffer_bytes));
  const int threads = static_cast<int>(plan.cpus.size());
  // Shares are whole pages, so that a thread's share is in its local memory after the first write.
  const int64_t own = buffer.bytes() / threads & ~int64_t{4095};
  REDLINE_TRY(run_timed_loop(TimedBy::kWall, plan.cpus, 1, kernels, [&](int thread, int) {
    std::memset(buffer.data() + thread * own, 1, own);
    return 0.0;
  }));
  std::atomic<uint64_t> check = 0;

  const int64_t share = std::min(own, plan.read_bytes / threads & ~int64_t{4095}), part = share / kIterationsPerPass;
  const auto read = [&](int thread, int iteration) {
    check += kernels.read_bytes(buffer.data() + thread * own + iteration % kIterationsPerPass * part, part);
    return static_cast<double>(part);
  };
  // A single thread walks over the shares of all threads; otherwise, with many threads, its share would stay in its
  // caches.
  const auto read_alone = [&](int, int iteration) { return read(iteration / kIterationsPerPass % threads, iteration); };
  REDLINE_ASSIGN(const LoopRates read_one,
                 run_timed_loop(TimedBy::kWall, {plan.cpus[0]}, plan.passes_one * threads * kIterationsPerPass, kernels,
                                read_alone));
  REDLINE_ASSIGN(const LoopRates read_all,
                 run_timed_loop(TimedBy::kWall, plan.cpus, plan.passes_all * kIterationsPerPass, kernels, read));
  rows.push_back(make_peak("read", "GB/s", read_one, read_all));

  // An iteration copies one half of a part onto the other half. Bytes read and bytes written both count.
  const int64_t half = own / kIterationsPerPass / 2;
  const auto copy = [&](int thread, int iteration) {
    char* from = buffer.data() + thread * own + iteration % kIterationsPerPass * 2 * half;
    std::memcpy(from + half, from, static_cast<size_t>(half));
    return 2.0 * static_cast<double>(half);
  };
  const auto copy_alone = [&](int, int iteration) { return copy(iteration / kIterationsPerPass % threads, iteration); };
  REDLINE_ASSIGN(const LoopRates copy_one,
                 run_timed_loop(TimedBy::kWall, {plan.cpus[0]}, threads * kIterationsPerPass, kernels, copy_alone));
  REDLINE_ASSIGN(const LoopRates copy_all,
                 run_timed_loop(TimedBy::kWall, plan.cpus, 2 * kIterationsPerPass, kernels, copy));
  rows.push_back(make_peak("copy", "GB/s", copy_one, copy_all));

  // The loop reads half of the cache, because other data uses part of it. It is timed per thread, because nothing is
  // shared.
  const int64_t l2 = cache_sizes().l2 > 0 ? cache_sizes().l2 : int64_t{1} << 20;
  const int64_t cached = std::clamp<int64_t>(l2 / 2, 1 << 16, own) & ~int64_t{4095};
  const auto read_l2 = [&](int thread, int) {
    double bytes = 0;
    for (; bytes < 32e6; bytes += static_cast<double>(cached))
      check += kernels.read_bytes(buffer.data() + thread * own, cached);
    return bytes;
  };
  REDLINE_ASSIGN(const LoopRates l2_one,
                 run_timed_loop(TimedBy::kThread, {plan.cpus[0]}, plan.iterations_one + 1, kernels, read_l2));
  REDLINE_ASSIGN(const LoopRates l2_all,
                 run_timed_loop(TimedBy::kThread, plan.cpus, plan.iterations_all, kernels, read_l2));
  rows.push_back(make_peak("l2 read", "GB/s", l2_one, l2_all));
  return {};
}

Result<Peak> measure_peak(const char* name, PeakFn peak, const Plan& plan, const CpuKernels& kernels) {
  const auto loop = [&](int, int) { return run_peak(peak, plan.iteration_seconds); };
  REDLINE_ASSIGN(const LoopRates one,
                 run_timed_loop(TimedBy::kThread, {plan.cpus[0]}, plan.iterations_one, kernels, loop));
  REDLINE_ASSIGN(const LoopRates all, run_timed_loop(TimedBy::kThread, plan.cpus, plan.iterations_all, kernels, loop));
  return make_peak(name, "GOP/s", one, all);
}

/// Displayed instruction of each peak loop; sets that are not listed are displayed by name.
struct PeakName {
  std::string_view isa, name, instruction;
};
constexpr PeakName kPeakNames[] = {
    {"generic", "f32", "mulps + addps"},
    {"avx2", "f32", "vfmadd ymm"},
    {"avx2", "int8", "vpmaddubsw ymm"},
    {"avx2_vnni", "int8", "vpdpbusd ymm"},
    {"avx512", "f32", "vfmadd zmm"},
    {"avx512", "int8", "vpmaddubsw zmm"},
    {"avx512_vnni", "int8", "vpdpbusd zmm"},
    {"avx512_bf16", "bf16", "vdpbf16ps zmm"},
    {"avx512_fp16", "f16", "vfmaddph zmm"},
    {"amx", "bf16", "tdpbf16ps"},
    {"amx", "int8", "tdpbssd"},
    {"amx_fp16", "f16", "tdpfp16ps"},
};
std::string instruction_of(std::string_view isa, std::string_view name) {
  for (const PeakName& row : kPeakNames)
    if (row.isa == isa && row.name == name) return std::string(row.instruction);
  return std::string(isa);
}

/// Returns the index in cpu_isas() of the richest instruction set that serves any kernel of the table.
int richest_isa(const CpuKernels& kernels) {
  int count = 0, richest = 0;
  const CpuIsa* isas = cpu_isas(&count);
  for (const KernelOrigin& origin : kernel_origins(kernels))
    for (int i = richest; i < count; ++i)
      if (std::string_view(origin.isa) == isas[i].name) richest = i;
  return richest;
}

void measure_latency(const std::vector<int>& cpus, bool quick, MachinePeaks& peaks) {
  constexpr size_t kMaxPartners = 8;
  const size_t others = cpus.size() - 1, partners = std::min(others, kMaxPartners);
  std::vector<double> times, wake_ups;
  for (size_t i = 1; i <= partners; ++i) {
    const int other = cpus[others * i / partners];  // spread over the whole list, including the last one
    times.push_back(ping_pong_ns(cpus[0], other, quick ? 3 : 10));
    wake_ups.push_back(wake_up_us(cpus[0], other, quick ? 5 : 20));
  }
  if (times.empty()) return;
  std::sort(times.begin(), times.end());
  std::sort(wake_ups.begin(), wake_ups.end());
  peaks.ping_pong_ns = times[times.size() / 2];
  peaks.ping_pong_worst_ns = times.back();
  peaks.wake_up_us = wake_ups[wake_ups.size() / 2];
}

}  // namespace

const Peak* MachinePeaks::find(std::string_view name) const {
  const Peak* best = nullptr;
  for (const Peak& row : rows)
    if (row.name == name && (best == nullptr || row.all > best->all)) best = &row;
  return best;
}

const Peak* MachinePeaks::find(std::string_view name, std::string_view isa_name) const {
  for (const Peak& row : rows)
    if (row.name == name && row.isa == isa_name) return &row;
  return nullptr;
}

Result<MachinePeaks> measure_peaks(const CpuKernels& kernels, const PeakOptions& options) {
  const Clock::time_point begin = Clock::now();
  Plan plan = options.quick ? Plan{cpu_order().cpus, 1, 2, int64_t{128} << 20, 2, 4, 0.004}
                            : Plan{cpu_order().cpus, 2, 4, int64_t{256} << 20, 5, 8, 0.008};
  if (options.threads < 0) return invalid_argument("ceilings: {} threads; expected 0 or more", options.threads);
  const int threads = options.threads > 0 ? options.threads : cpu_order().cores;
  plan.cpus.resize(std::min(plan.cpus.size(), static_cast<size_t>(threads)));
  // Each thread gets at least 8 MiB, because a smaller share would stay in a core's own cache.
  plan.buffer_bytes = std::max(plan.buffer_bytes, static_cast<int64_t>(plan.cpus.size()) << 23);

  plan.read_bytes = plan.buffer_bytes;
  if (options.read_bytes > 0 && options.read_bytes < plan.buffer_bytes) {
    constexpr int64_t kMin = int64_t{4} << 20;  // an iteration below 100 KiB would measure the clock
    constexpr int64_t kMaxPasses = 16;
    plan.read_bytes = std::max(options.read_bytes, kMin);
    const auto more = static_cast<int>(std::min(kMaxPasses, plan.buffer_bytes / plan.read_bytes));
    plan.passes_one *= more;
    plan.passes_all *= more;
  }

  MachinePeaks peaks;
  int count = 0;
  const CpuIsa* isas = cpu_isas(&count);
  const int richest = richest_isa(kernels);
  peaks.isa = isas[richest].name;
  peaks.threads = static_cast<int>(plan.cpus.size());
  if (plan.read_bytes < plan.buffer_bytes) peaks.read_bytes = plan.read_bytes;
  if (kernels.read_bytes != nullptr) {
    REDLINE_TRY(measure_memory(plan, kernels, peaks.rows));
    for (Peak& row : peaks.rows)
      for (const KernelOrigin& origin : kernel_origins(kernels))
        if (origin.kernel == "read_bytes") row.isa = row.name == "copy" ? "" : origin.isa;
  }
  for (int i = 0; i <= richest; ++i) {
    if (!isas[i].supported()) continue;
    CpuKernels own;  // has only the entries of this instruction set
    isas[i].fill(own);
    const std::pair<const char*, PeakFn> loops[] = {
        {"f32", own.peak_f32}, {"f16", own.peak_f16}, {"bf16", own.peak_bf16}, {"int8", own.peak_i8}};
    for (const auto& [name, peak] : loops) {
      const bool is_used =
          peak == kernels.peak_f32 || peak == kernels.peak_f16 || peak == kernels.peak_bf16 || peak == kernels.peak_i8;
      if (peak == nullptr || !(is_used || options.all_sets)) continue;
      REDLINE_ASSIGN(Peak row, measure_peak(name, peak, plan, kernels));
      row.isa = isas[i].name;
      row.instruction = instruction_of(row.isa, row.name);
      peaks.rows.push_back(std::move(row));
    }
  }
  measure_latency(plan.cpus, options.quick, peaks);
  peaks.seconds = seconds_since(begin);
  return peaks;
}

}  // namespace redline
