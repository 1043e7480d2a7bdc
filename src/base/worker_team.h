// A fixed set of threads that repeatedly run one function together.
#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/error.h"

namespace redline {

/// Pauses for one iteration of a spin-wait loop.
inline void spin_pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

/// A team of workers. Worker 0 is the calling thread; the others are threads that sleep between runs. If there are at
/// least as many allowed hardware threads as workers, each worker is pinned to its own, cores before SMT siblings
/// (base/topology.h); the caller is pinned only inside run().
class WorkerTeam {
 public:
  /// Starts the workers. Fewer than `workers` threads start if the system refuses more; see size(). A started thread
  /// calls `hooks.first` when it begins and `hooks.second` when it ends; worker 0 calls them around each run(). They
  /// load and release the configuration of the CPU's tile unit.
  explicit WorkerTeam(int workers, std::pair<void (*)(), void (*)()> hooks = {nullptr, nullptr});
  ~WorkerTeam();
  WorkerTeam(const WorkerTeam&) = delete;
  WorkerTeam& operator=(const WorkerTeam&) = delete;

  int size() const { return size_; }
  /// Returns true if there are more workers than cores, or REDLINE_SPIN_COUNT is 0. Waits should then yield instead of
  /// spinning, since a core can run only one spinning thread.
  bool oversubscribed() const { return oversubscribed_; }
  /// Calls fn(worker) once on every worker and returns when all are done. No allocations. One run at a time. `fn` does
  /// not throw.
  void run(const std::function<void(int)>& fn);
  /// Splits [0, count) into pieces of `grain` that idle workers take dynamically and pass to fn(begin, end). If a piece
  /// throws, no further pieces are taken, and the first exception is thrown here when all workers are done.
  void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& fn);
  /// Returns scratch memory for a run: `bytes` per worker, contiguous. All programs on the team share it; its contents
  /// do not outlive a run, and a larger request reallocates it. out_of_memory: states the requested bytes.
  Result<uint8_t*> scratch(int64_t bytes);

 private:
  void worker_main(int worker);
  void choose_scratch_pages();
  int size_;
  bool pinned_ = false, oversubscribed_ = false;
  int64_t idle_spins_ = 0;
  AlignedBuffer scratch_;
  /// Scratch is sized for the largest steps. Small steps touch little of it, at scattered places, and huge pages would
  /// make most of it resident; steps that fill it run faster with huge pages. So it starts with small pages.
  struct {
    uint32_t calls = 0;
    bool are_huge = false;
  } scratch_pages_;
  std::vector<int> cpus_;
  std::pair<void (*)(), void (*)()> hooks_;
  const std::function<void(int)>* fn_ = nullptr;
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<int> running_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace redline
