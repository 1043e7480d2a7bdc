#include "base/worker_team.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <system_error>

#include "base/settings.h"
#include "base/topology.h"

namespace redline {
namespace {

constexpr int64_t kFilledShare = 4;  // a quarter
constexpr int kCollapse = 25;        // MADV_COLLAPSE, missing in glibc 2.36; older kernels collapse pages eventually

int64_t resident_pages(uint8_t* data, int64_t pages, int64_t page) {
  int64_t count = 0;
  unsigned char flags[1024];
  for (int64_t first = 0, many; first < pages; first += many) {
    many = std::min<int64_t>(pages - first, sizeof flags);
    if (::mincore(data + first * page, static_cast<size_t>(many * page), flags) != 0) return 0;
    for (int64_t i = 0; i < many; ++i) count += flags[i] & 1;
  }
  return count;
}

}  // namespace

WorkerTeam::WorkerTeam(int workers, std::pair<void (*)(), void (*)()> hooks)
    : size_(std::max(workers, 1)), cpus_(cpu_order().cpus), hooks_(hooks) {
  const int places = static_cast<int>(cpus_.size());
  pinned_ = size_ <= places;
  // An invalid setting is reported where engines read it. The default is long enough for workers to be awake at the
  // next step of a decode loop, short enough not to burn an idle core.
  const Result<Settings> settings = read_settings();
  const int64_t spins = settings.ok() ? settings->spin_count : Settings().spin_count;
  oversubscribed_ = size_ > cpu_order().cores || spins == 0;
  idle_spins_ = oversubscribed_ ? 0 : spins;
  threads_.reserve(static_cast<size_t>(size_) - 1);
  for (int w = 1; w < size_; ++w) {
    try {
      threads_.emplace_back([this, w] { worker_main(w); });
    } catch (const std::system_error&) {  // out of threads; results do not depend on their number
      size_ = w;
    }
  }
}

WorkerTeam::~WorkerTeam() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerTeam::worker_main(int worker) {
  if (pinned_) pin_to_cpu(cpus_[static_cast<size_t>(worker)]);
  if (hooks_.first) hooks_.first();
  uint32_t seen = 0;
  for (;;) {
    for (int64_t spin = 0; spin < idle_spins_ && generation_.load(std::memory_order_acquire) == seen; ++spin)
      spin_pause();
    generation_.wait(seen, std::memory_order_acquire);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) break;
    (*fn_)(worker);
    if (running_.fetch_sub(1, std::memory_order_release) == 1) running_.notify_one();
  }
  if (hooks_.second) hooks_.second();
}

void WorkerTeam::run(const std::function<void(int)>& fn) {
  cpu_set_t before;
  const bool pin = size_ > 1 && pinned_ && sched_getaffinity(0, sizeof before, &before) == 0;
  if (pin) pin_to_cpu(cpus_[0]);
  if (size_ > 1) {
    fn_ = &fn;
    running_.store(size_ - 1, std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
  }
  // The caller owns its thread between runs, so tile state is set up and released around each run.
  if (hooks_.first) hooks_.first();
  // The other workers may wait for this one: an exception must not leave them behind.
  [&]() noexcept { fn(0); }();
  if (hooks_.second) hooks_.second();
  for (int64_t spin = 0; spin < idle_spins_ && running_.load(std::memory_order_acquire) != 0; ++spin) spin_pause();
  for (int left; size_ > 1 && (left = running_.load(std::memory_order_acquire)) != 0;)
    running_.wait(left, std::memory_order_acquire);
  if (pin) pthread_setaffinity_np(pthread_self(), sizeof before, &before);
}

// Switches scratch to huge pages once enough of it is resident. Checks this at calls 1, 2, 4, ... and every 64th call.
void WorkerTeam::choose_scratch_pages() {
  const uint32_t calls = ++scratch_pages_.calls;
  const bool looks = (calls & (calls - 1)) == 0 || calls % 64 == 0;
  if (scratch_pages_.are_huge || !looks) return;
  auto* data = static_cast<uint8_t*>(scratch_.data());
  const int64_t page = ::sysconf(_SC_PAGESIZE), count = (scratch_.size() + page - 1) / page;
  if (resident_pages(data, count, page) * kFilledShare < count) return;
  scratch_pages_.are_huge = true;
  ::madvise(data, static_cast<size_t>(scratch_.size()), MADV_HUGEPAGE);
  ::madvise(data, static_cast<size_t>(scratch_.size()), kCollapse);
}

Result<uint8_t*> WorkerTeam::scratch(int64_t bytes) {
  if (scratch_.size() < bytes * size_) {
    scratch_ = AlignedBuffer();  // freed first, so that old and new never coexist
    REDLINE_ASSIGN(scratch_, AlignedBuffer::make(bytes * size_));
    ::madvise(scratch_.data(), static_cast<size_t>(scratch_.size()), MADV_NOHUGEPAGE);
    scratch_pages_ = {};
  }
  choose_scratch_pages();
  return static_cast<uint8_t*>(scratch_.data());
}

void WorkerTeam::parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& fn) {
  std::atomic<int64_t> next{0};
  std::atomic<bool> has_failed{false};
  std::exception_ptr failure;
  run([&](int) {
    try {
      while (!has_failed.load(std::memory_order_relaxed)) {
        const int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
        if (begin >= count) return;
        fn(begin, std::min(begin + grain, count));
      }
    } catch (...) {  // bad_alloc, in most cases
      if (!has_failed.exchange(true)) failure = std::current_exception();
    }
  });
  if (failure) std::rethrow_exception(failure);
}

}  // namespace redline
