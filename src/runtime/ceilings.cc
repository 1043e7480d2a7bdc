#include "runtime/ceilings.h"

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <system_error>
#include <thread>

#include "base/topology.h"
#include "base/worker_team.h"

namespace redline {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

/// CPU time of the calling thread.
double thread_seconds() {
  timespec t = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// Memory that is really there: written, on large pages where the system gives them.
class Buffer {
 public:
  /// Halves the size until there is room, down to 16 MiB.
  static Result<Buffer> allocate(int64_t bytes) {
    for (int64_t size = bytes; size >= int64_t{16} << 20; size /= 2) {
      void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (data == MAP_FAILED) continue;
#if defined(MADV_HUGEPAGE)
      madvise(data, size, MADV_HUGEPAGE);
#endif
      return Buffer(static_cast<char*>(data), size);
    }
    return out_of_memory("measuring the read ceiling needs a buffer of 16 to {} MiB; none could be mapped",
                         bytes >> 20);
  }
  Buffer(Buffer&& other) noexcept : data_(other.data_), bytes_(other.bytes_) { other.data_ = nullptr; }
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  Buffer(char* data, int64_t bytes) : data_(data), bytes_(bytes) {}
  char* data_;
  int64_t bytes_;
};

/// The best and the median rate of some laps.
struct Rates {
  double best = 0, median = 0;
};

/// What a rate divides by. Register loops share nothing, so each thread's own CPU time is the fairer clock: it does not
/// run while other programs do. Memory is shared, so only the time of day from the first start to the last end counts.
enum class TimedBy { kThread, kWall };

/// Runs `body(thread, lap)`, which returns the amount of work that it did, `repeats` times on one thread for each CPU,
/// all starting a lap together.
Result<Rates> run(TimedBy timed_by, const std::vector<int>& cpus, int repeats, const CpuKernels& kernels,
                  const std::function<double(int, int)>& body) {
  struct Lap {
    Clock::time_point begin, end;
    double cpu_seconds = 0, amount = 0;
  };
  const int threads = static_cast<int>(cpus.size());
  std::vector<std::vector<Lap>> laps(threads, std::vector<Lap>(repeats));
  std::atomic<int64_t> arrived = 0;
  std::atomic<bool> abandoned = false;
  const auto work = [&](int thread) {
    pin_to_cpu(cpus[thread]);
    if (kernels.worker_begin != nullptr) kernels.worker_begin();
    for (int r = 0; r < repeats && !abandoned; ++r) {
      ++arrived;
      while (arrived < int64_t{threads} * (r + 1) && !abandoned) std::this_thread::yield();
      Lap& lap = laps[thread][r];
      lap.begin = Clock::now();
      const double cpu_begin = thread_seconds();
      lap.amount = abandoned ? 0 : body(thread, r);
      lap.cpu_seconds = thread_seconds() - cpu_begin;
      lap.end = Clock::now();
    }
    if (kernels.worker_end != nullptr) kernels.worker_end();
  };
  std::vector<std::thread> team;
  std::string failure;
  for (int t = 0; t < threads && !abandoned; ++t) {
    try {
      team.emplace_back(work, t);
    } catch (const std::exception& error) {
      failure = error.what();
      abandoned = true;
    }
  }
  for (std::thread& t : team) t.join();
  if (abandoned) return out_of_memory("measuring the ceilings needs {} threads: {}", threads, failure);

  std::vector<double> rates;
  for (int r = 0; r < repeats; ++r) {
    Clock::time_point begin = laps[0][r].begin, end = laps[0][r].end;
    double amount = 0, thread_rates = 0;
    for (const auto& thread : laps) {
      begin = std::min(begin, thread[r].begin);
      end = std::max(end, thread[r].end);
      amount += thread[r].amount;
      thread_rates += thread[r].amount / std::max(thread[r].cpu_seconds, 1e-9);
    }
    rates.push_back(timed_by == TimedBy::kThread ? thread_rates : amount / std::max(seconds_between(begin, end), 1e-9));
  }
  std::sort(rates.begin(), rates.end());
  return Rates{rates.back(), rates[rates.size() / 2]};
}

/// How long everything goes on.
struct Plan {
  std::vector<int> cpus;
  int passes_one, passes_all;  ///< over the buffer
  int64_t buffer_bytes;
  int laps_one, laps_all;  ///< of a register loop
  double lap_seconds;
  int64_t read_bytes = 0;  ///< of the buffer
};
/// A pass is read in this many laps: a lap of 1 or 2 ms has a good chance to pass undisturbed on a busy machine.
constexpr int kLapsPerPass = 8;

Ceiling make_ceiling(const char* name, const char* unit, const Rates& one, const Rates& all) {
  // On a busy machine the runs of all threads may all have been disturbed; together they do no less than one alone.
  const double best = std::max(one.best, all.best);
  return {name, unit, one.best / 1e9, best / 1e9, best > 0 ? (best - std::min(best, all.median)) / best : 0};
}

Result<Ceiling> measure_read(const Plan& plan, const CpuKernels& kernels) {
  REDLINE_ASSIGN(const Buffer buffer, Buffer::allocate(plan.buffer_bytes));
  const int64_t bytes = std::min(buffer.bytes(), plan.read_bytes);
  const int threads = static_cast<int>(plan.cpus.size());
  // Whole pages, so that a thread's share lies in the memory near it once it has written there.
  const int64_t share = bytes / threads & ~int64_t{4095}, part = share / kLapsPerPass;
  REDLINE_TRY(run(TimedBy::kWall, plan.cpus, 1, kernels, [&](int thread, int) {
    std::memset(buffer.data() + thread * share, 1, share);
    return 0.0;
  }));
  std::atomic<uint64_t> check = 0;
  const auto read = [&](int thread, int lap) {
    check += kernels.read_bytes(buffer.data() + thread * share + lap % kLapsPerPass * part, part);
    return static_cast<double>(part);
  };
  // One thread walks over the shares of all, or it would stay within its caches where there are many.
  const auto read_alone = [&](int, int lap) { return read(lap / kLapsPerPass % threads, lap); };
  REDLINE_ASSIGN(const Rates one,
                 run(TimedBy::kWall, {plan.cpus[0]}, plan.passes_one * threads * kLapsPerPass, kernels, read_alone));
  REDLINE_ASSIGN(const Rates all, run(TimedBy::kWall, plan.cpus, plan.passes_all * kLapsPerPass, kernels, read));
  return make_ceiling("read", "GB/s", one, all);
}

Result<Ceiling> measure_peak(const char* name, PeakFn peak, const Plan& plan, const CpuKernels& kernels) {
  const auto loop = [&](int, int) {
    double operations = 0;
    const Clock::time_point begin = Clock::now();
    // 2000 steps take 5 to 50 us: long beside a look at the clock, short beside the lap.
    while (seconds_between(begin, Clock::now()) < plan.lap_seconds) operations += peak(2000);
    return operations;
  };
  REDLINE_ASSIGN(const Rates one, run(TimedBy::kThread, {plan.cpus[0]}, plan.laps_one, kernels, loop));
  REDLINE_ASSIGN(const Rates all, run(TimedBy::kThread, plan.cpus, plan.laps_all, kernels, loop));
  return make_ceiling(name, "GOP/s", one, all);
}

}  // namespace

const Ceiling* Ceilings::find(std::string_view name) const {
  for (const Ceiling& row : rows)
    if (row.name == name) return &row;
  return nullptr;
}

Result<Ceilings> measure_ceilings(const CpuKernels& kernels, const CeilingOptions& options) {
  const Clock::time_point begin = Clock::now();
  Plan plan = options.quick ? Plan{cpu_order().cpus, 1, 2, int64_t{128} << 20, 2, 4, 0.004}
                            : Plan{cpu_order().cpus, 2, 4, int64_t{256} << 20, 5, 8, 0.008};
  if (options.threads < 0) return invalid_argument("ceilings: {} threads; expected 0 or more", options.threads);
  if (options.threads > 0) plan.cpus.resize(std::min(plan.cpus.size(), static_cast<size_t>(options.threads)));
  // A smaller share would stay in a core's own cache.
  plan.buffer_bytes = std::max(plan.buffer_bytes, static_cast<int64_t>(plan.cpus.size()) << 23);

  plan.read_bytes = plan.buffer_bytes;
  if (options.read_bytes > 0 && options.read_bytes < plan.buffer_bytes) {
    constexpr int64_t kLeast = int64_t{4} << 20;  // a lap below 100 KiB would measure the clock
    constexpr int64_t kMostPasses = 16;
    plan.read_bytes = std::max(options.read_bytes, kLeast);
    const auto more = static_cast<int>(std::min(kMostPasses, plan.buffer_bytes / plan.read_bytes));
    plan.passes_one *= more;
    plan.passes_all *= more;
  }

  Ceilings ceilings;
  for (const KernelOrigin& origin : kernel_origins(kernels)) {
    int count = 0;
    const CpuIsa* isas = cpu_isas(&count);
    const auto rank = [&](std::string_view name) {
      return std::find_if(isas, isas + count, [&](const CpuIsa& isa) { return name == isa.name; }) - isas;
    };
    if (rank(origin.isa) < count && (ceilings.isa.empty() || rank(origin.isa) > rank(ceilings.isa)))
      ceilings.isa = origin.isa;
  }
  ceilings.threads = static_cast<int>(plan.cpus.size());
  const struct {
    const char* name;
    PeakFn peak;
  } peaks[] = {{"f32", kernels.peak_f32}, {"bf16", kernels.peak_bf16}, {"int8", kernels.peak_i8}};
  if (kernels.read_bytes != nullptr) {
    REDLINE_ASSIGN(Ceiling row, measure_read(plan, kernels));
    ceilings.rows.push_back(std::move(row));
  }
  for (const auto& [name, peak] : peaks) {
    if (peak == nullptr) continue;
    REDLINE_ASSIGN(Ceiling row, measure_peak(name, peak, plan, kernels));
    ceilings.rows.push_back(std::move(row));
  }
  ceilings.seconds = seconds_between(begin, Clock::now());
  return ceilings;
}

}  // namespace redline
