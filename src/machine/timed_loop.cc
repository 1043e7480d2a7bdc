#include "machine/timed_loop.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <string>
#include <thread>

#include "base/thread_time.h"
#include "base/topology.h"
#include "base/worker_team.h"

namespace redline {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

/// Pins the calling thread to a core while it lives. The destructor restores the affinity.
class PinnedHere {
 public:
  explicit PinnedHere(int cpu) : is_known_(sched_getaffinity(0, sizeof before_, &before_) == 0) { pin_to_cpu(cpu); }
  ~PinnedHere() {
    if (is_known_) sched_setaffinity(0, sizeof before_, &before_);
  }
  PinnedHere(const PinnedHere&) = delete;
  PinnedHere& operator=(const PinnedHere&) = delete;

 private:
  cpu_set_t before_{};
  bool is_known_;
};

}  // namespace

Result<BandwidthBuffer> BandwidthBuffer::allocate(int64_t bytes) {
  for (int64_t size = bytes; size >= int64_t{16} << 20; size /= 2) {
    void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) continue;
#if defined(MADV_HUGEPAGE)
    madvise(data, size, MADV_HUGEPAGE);
#endif
    return BandwidthBuffer(static_cast<char*>(data), size);
  }
  return out_of_memory("measuring the read ceiling needs a buffer of 16 to {} MiB; none could be mapped", bytes >> 20);
}
BandwidthBuffer::~BandwidthBuffer() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Result<LoopRates> run_timed_loop(TimedBy timed_by, const std::vector<int>& cpus, int iterations,
                                 const CpuKernels& kernels, const std::function<double(int, int)>& body) {
  struct Iteration {
    Clock::time_point begin, end;
    double cpu_seconds = 0, amount = 0;
  };
  const int threads = static_cast<int>(cpus.size());
  std::vector<std::vector<Iteration>> times(threads, std::vector<Iteration>(iterations));
  std::atomic<int64_t> arrived = 0;
  std::atomic<bool> abandoned = false;
  const auto work = [&](int thread) {
    pin_to_cpu(cpus[thread]);
    if (kernels.worker_begin != nullptr) kernels.worker_begin();
    for (int r = 0; r < iterations && !abandoned; ++r) {
      ++arrived;
      while (arrived < int64_t{threads} * (r + 1) && !abandoned) std::this_thread::yield();
      Iteration& iteration = times[thread][r];
      iteration.begin = Clock::now();
      const double cpu_begin = thread_seconds();
      iteration.amount = abandoned ? 0 : body(thread, r);
      iteration.cpu_seconds = thread_seconds() - cpu_begin;
      iteration.end = Clock::now();
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
  for (int r = 0; r < iterations; ++r) {
    Clock::time_point begin = times[0][r].begin, end = times[0][r].end;
    double amount = 0, thread_rates = 0;
    for (const auto& thread : times) {
      begin = std::min(begin, thread[r].begin);
      end = std::max(end, thread[r].end);
      amount += thread[r].amount;
      thread_rates += thread[r].amount / std::max(thread[r].cpu_seconds, 1e-9);
    }
    rates.push_back(timed_by == TimedBy::kThread ? thread_rates : amount / std::max(seconds_between(begin, end), 1e-9));
  }
  std::sort(rates.begin(), rates.end());
  return LoopRates{rates.back(), rates[rates.size() / 2]};
}

double run_peak(PeakFn peak, double seconds) {
  double operations = 0;
  const Clock::time_point begin = Clock::now();
  // 2000 steps take 5 to 50 us: long compared with reading the clock, short compared with the iteration.
  while (seconds_between(begin, Clock::now()) < seconds) operations += peak(2000);
  return operations;
}

double ping_pong_ns(int cpu, int other_cpu, int rounds) {
  constexpr int kTurns = 2000;          // turns per round, which take 0.1 to 1 ms
  constexpr double kMaxSeconds = 0.02;  // a core that another program holds answers after its time slice
  struct alignas(128) Line {
    std::atomic<int> turn{0};
  };
  Line line;
  std::atomic<bool> started = false, stop = false;
  const PinnedHere pinned(cpu);
  std::thread partner;
  try {
    partner = std::thread([&] {
      pin_to_cpu(other_cpu);
      started = true;
      for (int expected = 1; !stop.load(std::memory_order_relaxed);) {
        if (line.turn.load(std::memory_order_acquire) != expected) {
          spin_pause();
          continue;
        }
        line.turn.store(expected + 1, std::memory_order_release);
        expected += 2;
      }
    });
  } catch (const std::exception&) {
    return 0;
  }
  while (!started) std::this_thread::yield();
  double best = 0;
  int turn = 0;
  for (int r = 0; r < rounds; ++r) {
    const Clock::time_point begin = Clock::now();
    int turns = 0;
    bool late = false;
    while (turns < kTurns && !late) {
      line.turn.store(turn + 1, std::memory_order_release);
      while (line.turn.load(std::memory_order_acquire) != turn + 2) spin_pause();
      turn += 2;
      // The clock is read once per 64 turns; reading it in every turn would distort the measurement.
      if (++turns % 64 == 0) late = seconds_between(begin, Clock::now()) > kMaxSeconds;
    }
    const double ns = seconds_between(begin, Clock::now()) * 1e9 / (2.0 * turns);
    best = r == 0 ? ns : std::min(best, ns);
  }
  stop = true;
  partner.join();
  return best;
}

double wake_up_us(int cpu, int other_cpu, int rounds) {
  std::atomic<int> bell = 0, asleep = 0, woken = 0;
  std::vector<Clock::time_point> heard(static_cast<size_t>(rounds));
  const PinnedHere pinned(cpu);
  std::thread sleeper;
  try {
    sleeper = std::thread([&] {
      pin_to_cpu(other_cpu);
      for (int r = 0; r < rounds; ++r) {
        asleep = r + 1;
        bell.wait(r);
        heard[static_cast<size_t>(r)] = Clock::now();
        woken = r + 1;
      }
    });
  } catch (const std::exception&) {
    return 0;
  }
  std::vector<double> times;
  for (int r = 0; r < rounds; ++r) {
    while (asleep != r + 1) std::this_thread::yield();
    // The pause is long enough for the thread to sleep in the kernel and for its core to go idle.
    std::this_thread::sleep_for(std::chrono::microseconds(300));
    const Clock::time_point begin = Clock::now();
    bell.fetch_add(1);
    bell.notify_one();
    while (woken != r + 1) std::this_thread::yield();
    times.push_back(seconds_between(begin, heard[static_cast<size_t>(r)]) * 1e6);
  }
  sleeper.join();
  std::sort(times.begin(), times.end());
  return times.empty() ? 0 : times[times.size() / 2];
}

}  // namespace redline
