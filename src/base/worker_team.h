// A fixed set of threads that run one function together, again and again.
#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/error.h"

namespace redline {

/// One turn of a loop that waits for another thread.
inline void spin_pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

/// Worker 0 is the calling thread; the others are threads that sleep between runs. When there are at least as many
/// allowed hardware threads as workers, each worker is pinned to its own, cores before siblings (base/topology.h; the
/// caller only while inside run()).
class WorkerTeam {
 public:
  /// Fewer than `workers` when the system refuses to start more threads: ask size().
  /// `hooks.first` runs on every worker before its first task, `hooks.second` after its last (tile configuration).
  explicit WorkerTeam(int workers, std::pair<void (*)(), void (*)()> hooks = {nullptr, nullptr});
  ~WorkerTeam();
  WorkerTeam(const WorkerTeam&) = delete;
  WorkerTeam& operator=(const WorkerTeam&) = delete;

  int size() const { return size_; }
  /// More workers than cores: waits should yield at once instead of spinning, for a core has one spinner at most.
  bool oversubscribed() const { return oversubscribed_; }
  /// Calls fn(worker) once on every worker and returns when all are done. Allocates nothing. One run at a time.
  void run(const std::function<void(int)>& fn);
  /// Splits [0, count) into pieces of `grain` that idle workers take in turn: fn(begin, end).
  void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& fn);
  /// Memory for what a run keeps for itself: `bytes` for each worker, one behind the other. All programs that run on
  /// the team use the same; nothing in it outlives a run, and a call that asks for more moves it.
  /// out_of_memory: the bytes asked for.
  Result<uint8_t*> scratch(int64_t bytes);

 private:
  void worker_main(int worker);
  void choose_scratch_pages();
  int size_;
  bool pinned_ = false, oversubscribed_ = false;
  AlignedBuffer scratch_;
  /// Scratch has room for the largest steps; small ones touch little of it, here and there, and huge pages would make that
  /// most of it. Steps that fill it run faster by huge pages. So it begins with small ones.
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
