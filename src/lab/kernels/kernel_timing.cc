#include "lab/kernels/kernel_timing.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>

#include "base/thread_time.h"
#include "base/topology.h"
#include "base/worker_team.h"

namespace redline::lab {
namespace {

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Returns the size in bytes of all copies of the inputs, so that they exceed the caches.
int64_t rotation_bytes() {
  constexpr int64_t kMin = int64_t{64} << 20, kMax = int64_t{512} << 20;
  const int64_t l3 = cache_sizes().l3;
  return l3 > 0 ? std::clamp(2 * l3, kMin, kMax) : kMax;
}

class Bench {
 public:
  Bench(KernelCase& kernel_case, const CpuKernels& table, const KernelBenchOptions& options)
      : case_(kernel_case), options_(options), team_(options.threads, {table.worker_begin, table.worker_end}),
        scratch_(map_bytes(kScratchBytes * options.threads)), begin_(static_cast<size_t>(options.threads)),
        end_(begin_.size()) {}

  Result<KernelTiming> run() {
    if (team_.size() != options_.threads)
      return out_of_memory("{} threads were requested; the system started {}", options_.threads, team_.size());
    if (scratch_ == nullptr) return out_of_memory("{} bytes of scratch", kScratchBytes * options_.threads);
    const int64_t each = case_.slot_bytes() + case_.output_bytes();
    slots_ = options_.cached ? kInputVariants
                             : std::clamp((options_.rotation_bytes > 0 ? options_.rotation_bytes : rotation_bytes()) /
                                                  std::max<int64_t>(1, each) +
                                              1,
                                          kInputVariants, kMaxSlots);
    // There is one output per slot, so that the compared outputs are part of the rotation.
    outputs_ = options_.cached ? 1 : slots_;
    REDLINE_TRY(case_.allocate(slots_, std::max(outputs_, kInputVariants), options_.cached));
    check();
    if (timing_.failure.empty()) time();
    return timing_;
  }

 private:
  static constexpr int64_t kMaxSlots = 1 << 16;

  void check() {
    for (int64_t seed = 0; seed < options_.seeds && timing_.failure.empty(); ++seed) {
      const auto s = static_cast<uint64_t>(seed) + 1;
      case_.fill(s * 0x9e3779b97f4a7c15u);
      const int64_t variant = seed % kInputVariants;
      case_.poison(0);
      iteration(variant, 1);
      const KernelCheck c = case_.check(variant, 0, s);
      timing_.check.of_bound = std::max(timing_.check.of_bound, c.of_bound);
      timing_.check.absolute = std::max(timing_.check.absolute, c.absolute);
      timing_.check.elements += c.elements;
      ++timing_.seeds;
      if (!(c.of_bound <= 1))
        timing_.failure = fmt::format("wrong answer: {:.3g} of what rounding explains (inputs {})", c.of_bound, seed);
    }
  }

  /// Runs the kernel on the slots from `first` on, into the outputs from 0 on. Returns the total seconds.
  double iteration(int64_t first, int64_t runs) {
    arrived_.store(0, std::memory_order_relaxed);
    const int workers = team_.size();
    team_.run([&](int worker) {
      arrived_.fetch_add(1, std::memory_order_acq_rel);
      while (arrived_.load(std::memory_order_acquire) < workers) spin_pause();
      const auto w = static_cast<size_t>(worker);
      begin_[w] = workers == 1 ? thread_seconds() : wall_seconds();
      for (int64_t i = 0; i < runs; ++i)
        case_.run({(first + i) % slots_, i % outputs_, worker, workers, scratch_.get() + kScratchBytes * worker});
      end_[w] = workers == 1 ? thread_seconds() : wall_seconds();
    });
    return *std::max_element(end_.begin(), end_.end()) - *std::min_element(begin_.begin(), begin_.end());
  }

  void time() {
    case_.spread();
    // The timed runs are compared with these results of the variants, which are checked first.
    const auto bytes = static_cast<size_t>(case_.output_bytes());
    std::vector<std::vector<uint8_t>> expected;
    for (int64_t v = 0; v < kInputVariants; ++v) {
      case_.poison(0);
      iteration(v, 1);
      if (const KernelCheck c = case_.check(v, 0, static_cast<uint64_t>(v)); !(c.of_bound <= 1)) {
        timing_.failure =
            fmt::format("another answer than when it was checked: {:.3g} of what rounding explains", c.of_bound);
        return;
      }
      expected.emplace_back(case_.output(0), case_.output(0) + bytes);
    }
    // Reading the CPU clock takes less than a microsecond; an iteration is a thousand times longer.
    const double wanted = team_.size() == 1 ? 1e-3 : 4e-3;
    const double once = std::max(iteration(0, 1), 1e-7);
    timing_.slots = slots_;
    timing_.runs_per_iteration =
        std::clamp<int64_t>(std::llround(std::ceil(wanted / once)), 1, options_.cached ? 100'000 : slots_);
    const double until = wall_seconds() + options_.seconds;
    int64_t next = 1;
    for (int64_t iterations = 0; iterations < kMinIterations || wall_seconds() < until; ++iterations) {
      const int64_t written = std::min(timing_.runs_per_iteration, outputs_);
      for (int64_t i = 0; i < written; ++i) case_.poison(i);
      const double seconds = iteration(next, timing_.runs_per_iteration);
      timing_.seconds.push_back(seconds / static_cast<double>(timing_.runs_per_iteration));
      for (int64_t i = 0; i < written; ++i) {
        // An output written by every run holds the result of the last one.
        const int64_t run = outputs_ == 1 ? timing_.runs_per_iteration - 1 : i;
        const auto variant = static_cast<size_t>((next + run) % slots_ % kInputVariants);
        if (std::memcmp(case_.output(i), expected[variant].data(), bytes) == 0) continue;
        timing_.failure = "another answer in a timed run than when it was checked";
        return;
      }
      next = (next + timing_.runs_per_iteration) % slots_;
    }
    std::sort(timing_.seconds.begin(), timing_.seconds.end());
  }

  KernelCase& case_;
  const KernelBenchOptions& options_;
  WorkerTeam team_;
  std::shared_ptr<uint8_t> scratch_;
  std::vector<double> begin_, end_;
  std::atomic<int> arrived_{0};
  int64_t slots_ = kInputVariants, outputs_ = 1;
  KernelTiming timing_;
};

}  // namespace

double KernelTiming::median() const {
  const size_t n = seconds.size();
  if (n == 0) return 0;
  return n % 2 ? seconds[n / 2] : (seconds[n / 2 - 1] + seconds[n / 2]) / 2;
}

double KernelTiming::spread() const {
  return seconds.empty() || median() <= 0 ? 0 : (seconds.back() - seconds.front()) / median();
}

Result<KernelTiming> time_kernel(KernelCase& kernel_case, const CpuKernels& table, const KernelBenchOptions& options) {
  return Bench(kernel_case, table, options).run();
}

}  // namespace redline::lab
