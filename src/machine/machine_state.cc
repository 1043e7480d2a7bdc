#include "machine/machine_state.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/topology.h"

namespace redline {
namespace {

constexpr int kIterations = 8;  // iterations per pass over a buffer, of 1 to 2 ms each

bool off(double a, double b, double factor) { return std::max(a, b) > factor * std::min(a, b); }

}  // namespace

bool differs(const MachineState& a, const MachineState& b) {
  return off(a.read_gb_s, b.read_gb_s, 1.15) || off(a.f32_gop_s, b.f32_gop_s, 1.15) ||
         off(a.ping_pong_ns, b.ping_pong_ns, 1.5);
}

Result<MachineSampler> MachineSampler::make(const CpuKernels& kernels, int threads) {
  std::vector<int> cpus = cpu_order().cpus;
  cpus.resize(std::min(cpus.size(), static_cast<size_t>(threads > 0 ? threads : cpu_order().cores)));
  // The size is the same as for the peaks: 256 MiB, or 8 MiB per thread, more than the caches of a core.
  const int64_t bytes = std::max(int64_t{256} << 20, static_cast<int64_t>(cpus.size()) << 23);
  REDLINE_ASSIGN(BandwidthBuffer buffer, BandwidthBuffer::allocate(bytes));
  MachineSampler sampler(kernels, std::move(cpus), std::move(buffer));
  const int64_t share = sampler.buffer_.bytes() / static_cast<int64_t>(sampler.cpus_.size()) & ~int64_t{4095};
  REDLINE_TRY(run_timed_loop(TimedBy::kWall, sampler.cpus_, 1, kernels, [&](int thread, int) {
    std::memset(sampler.buffer_.data() + thread * share, 1, share);
    return 0.0;
  }));
  return sampler;
}

Result<MachineState> MachineSampler::sample() {
  MachineState state;
  const int64_t share = buffer_.bytes() / static_cast<int64_t>(cpus_.size()) & ~int64_t{4095},
                part = share / kIterations;
  std::atomic<uint64_t> check = 0;
  if (kernels_->read_bytes != nullptr) {
    REDLINE_ASSIGN(const LoopRates read,
                   run_timed_loop(TimedBy::kWall, cpus_, kIterations, *kernels_, [&](int thread, int iteration) {
                     check += kernels_->read_bytes(buffer_.data() + thread * share + iteration * part, part);
                     return static_cast<double>(part);
                   }));
    state.read_gb_s = read.median / 1e9;
  }
  if (kernels_->peak_f32 != nullptr) {
    REDLINE_ASSIGN(const LoopRates f32, run_timed_loop(TimedBy::kThread, cpus_, 5, *kernels_,
                                                       [&](int, int) { return run_peak(kernels_->peak_f32, 0.001); }));
    state.f32_gop_s = f32.median / 1e9;
  }
  if (cpus_.size() > 1) state.ping_pong_ns = ping_pong_ns(cpus_.front(), cpus_.back(), 3);
  return state;
}

}  // namespace redline
