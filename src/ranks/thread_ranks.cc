// Ranks as threads of one process: each publishes the address of its part, and all read all parts. Two counters per
// rank and exchange order the phases; they only grow, so nothing is reset between rounds.
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>

#include "ranks/rank_group.h"

namespace redline {
namespace {

constexpr int kMaxRanks = 64;
// A rank waits this long without sleeping, about the time by which ranks of one machine arrive apart.
constexpr int kSpins = 4000;
constexpr timespec kNap = {0, 50'000};
constexpr double kMaxNapSeconds = 0.1;  // the most of one nap that counts towards a time limit

void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// The state of one rank in one exchange, which the other ranks read.
struct alignas(64) Slot {
  std::atomic<uint64_t> arrived{0}, left{0};  ///< numbers of rounds
  std::atomic<uint64_t> reading{0};           ///< the last round whose parts this rank reads, until it has left
  const void* data = nullptr;                 ///< the part of the last round; written before `arrived`
  int64_t bytes = 0;
};

struct Channel {
  Channel(std::string channel_name, int ranks) : name(std::move(channel_name)), slots(static_cast<size_t>(ranks)) {}
  const std::string name;
  std::vector<Slot> slots;  ///< by rank
};

/// The state that all ranks share.
class Hub {
 public:
  Hub(int size, const ThreadRanksOptions& options) : size_(size), options_(options) {}
  int size() const { return size_; }
  Channel& channel(const std::string& name) {
    std::lock_guard lock(mutex_);
    const auto [at, is_new] = channels_.try_emplace(name, nullptr);
    if (is_new) at->second = std::make_unique<Channel>(name, size_);
    return *at->second;
  }
  Status claim(const void* resources, int rank) {
    std::lock_guard lock(mutex_);
    for (const auto& [other, taken] : resources_)
      if (other != rank && taken == resources)
        return invalid_argument("ranks {} and {} share a runtime; each rank needs one of its own", other, rank);
    resources_[rank] = resources;
    return {};
  }
  void fail(Status status) {
    std::lock_guard lock(mutex_);
    if (has_failed()) return;
    status_ = std::move(status);
    has_failed_.store(true, std::memory_order_seq_cst);
  }
  bool has_failed() const { return has_failed_.load(std::memory_order_seq_cst); }
  Status status() const {
    if (!has_failed()) return {};
    std::lock_guard lock(mutex_);
    return status_;
  }
  /// Waits until the counter of every rank has reached `round`. Returns false if the group has failed, which a timeout
  /// makes it.
  bool wait(const Channel& channel, std::atomic<uint64_t> Slot::*counter, uint64_t round, const char* verb) {
    using Clock = std::chrono::steady_clock;
    Clock::time_point last;
    double waited = 0;
    for (int spins = 0; !has_failed(); ++spins) {
      const auto is_behind = [&](const Slot& slot) { return (slot.*counter).load(std::memory_order_acquire) < round; };
      const auto late = std::find_if(channel.slots.begin(), channel.slots.end(), is_behind);
      if (late == channel.slots.end()) return true;
      if (spins < kSpins) {
        pause_briefly();
        continue;
      }
      if (spins == kSpins) last = Clock::now();
      ::nanosleep(&kNap, nullptr);
      // A long nap means that the process was stopped, and the other ranks with it.
      const Clock::time_point now = Clock::now();
      waited += std::min(std::chrono::duration<double>(now - last).count(), kMaxNapSeconds);
      last = now;
      if (waited < options_.timeout_seconds) continue;
      std::string missing;
      for (size_t r = 0; r < channel.slots.size(); ++r)
        if (is_behind(channel.slots[r])) missing += (missing.empty() ? "" : ", ") + std::to_string(r);
      if (missing.empty()) continue;  // the last one has just arrived
      fail(internal("{}: of {} ranks, {} did not {} within {} s", channel.name, size_, missing, verb,
                    options_.timeout_seconds));
    }
    return false;
  }
  /// After a failure: waits until no rank reads a part of the channel. Ranks that have not begun to read it do not.
  void wait_for_readers(const Channel& channel) const {
    for (const Slot& slot : channel.slots)
      while (slot.reading.load(std::memory_order_seq_cst) > slot.left.load(std::memory_order_acquire))
        ::nanosleep(&kNap, nullptr);
  }

 private:
  const int size_;
  const ThreadRanksOptions options_;
  mutable std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Channel>> channels_;
  std::map<int, const void*> resources_;  ///< by rank
  std::atomic<bool> has_failed_{false};
  Status status_;  ///< under mutex_
};

class ThreadExchange final : public RankExchange {
 public:
  ThreadExchange(Hub& hub, Channel& channel, int rank)
      : hub_(hub), channel_(channel), mine_(channel.slots[static_cast<size_t>(rank)]),
        parts_(channel.slots.size(), nullptr) {}

  void arrive(const void* data, int64_t bytes) override {
    mine_.data = data;
    mine_.bytes = bytes;
    mine_.arrived.fetch_add(1, std::memory_order_release);
  }
  std::span<const void* const> parts() override {
    const uint64_t round = mine_.arrived.load(std::memory_order_relaxed);
    if (collected_.load(std::memory_order_acquire) == round) return parts_;
    std::lock_guard lock(mutex_);
    if (collected_.load(std::memory_order_relaxed) == round) return parts_;
    if (!hub_.wait(channel_, &Slot::arrived, round, "arrive")) return {};
    // A rank that leaves after a failure either sees that this one reads, or this one sees the failure.
    mine_.reading.store(round, std::memory_order_seq_cst);
    if (hub_.has_failed()) {
      mine_.reading.store(round - 1, std::memory_order_release);
      return {};
    }
    for (size_t r = 0; r < parts_.size(); ++r) {
      const Slot& slot = channel_.slots[r];
      if (slot.bytes != mine_.bytes) {
        hub_.fail(internal("{}: rank {} has {} bytes, another one {}", channel_.name, r, slot.bytes, mine_.bytes));
        mine_.reading.store(round - 1, std::memory_order_release);
        return {};
      }
      parts_[r] = slot.data;
    }
    collected_.store(round, std::memory_order_release);
    return parts_;
  }
  void leave() override {
    const uint64_t round = mine_.arrived.load(std::memory_order_relaxed);
    mine_.left.store(round, std::memory_order_release);
    if (!hub_.wait(channel_, &Slot::left, round, "leave")) hub_.wait_for_readers(channel_);
  }

 private:
  Hub& hub_;
  Channel& channel_;
  Slot& mine_;
  std::mutex mutex_;  ///< of the threads of this rank
  std::vector<const void*> parts_;
  std::atomic<uint64_t> collected_{0};  ///< the round that parts_ are of
};

class ThreadRank final : public RankGroup {
 public:
  ThreadRank(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return hub_->size(); }
  RankExchange& exchange(const std::string& name) override {
    std::lock_guard lock(mutex_);
    const auto [at, is_new] = exchanges_.try_emplace(name, nullptr);
    if (is_new) at->second = std::make_unique<ThreadExchange>(*hub_, hub_->channel(name), rank_);
    return *at->second;
  }
  Status claim(const void* resources) override { return hub_->claim(resources, rank_); }
  void fail(Status status) override { hub_->fail(std::move(status)); }
  Status status() const override { return hub_->status(); }

 private:
  std::shared_ptr<Hub> hub_;
  const int rank_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<ThreadExchange>> exchanges_;
};

}  // namespace

Result<std::vector<std::shared_ptr<RankGroup>>> make_thread_ranks(int size, const ThreadRanksOptions& options) {
  if (size < 1 || size > kMaxRanks) return invalid_argument("{} ranks: expected 1 to {}", size, kMaxRanks);
  const auto hub = std::make_shared<Hub>(size, options);
  std::vector<std::shared_ptr<RankGroup>> ranks;
  ranks.reserve(static_cast<size_t>(size));
  for (int r = 0; r < size; ++r) ranks.push_back(std::make_shared<ThreadRank>(hub, r));
  return ranks;
}

}  // namespace redline
