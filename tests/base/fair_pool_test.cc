#include "base/fair_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace redline {
namespace {

/// One thread whose jobs take the time that they say, and a list of those that ran.
class OneThread {
 public:
  /// The thread is inside the gate when this returns: a job that is pushed before could run before the others are
  /// there.
  OneThread() : pool_({.threads = 1, .now = [this] { return now_; }}) {
    pool_.push({"gate", ""}, [this] {
      at_gate_.set_value();
      gate_.get_future().wait();
    });
    at_gate_.get_future().wait();
  }
  uint64_t push(const WorkShare& share, double seconds) {
    return pool_.push(share, [this, share, seconds] {
      now_ += seconds;
      ran_ += share.client + share.user + " ";
    });
  }
  /// Lets the jobs run that were pushed, in the order of their turns.
  std::string run() {
    gate_.set_value();
    while (pool_.num_waiting() > 0) std::this_thread::yield();
    pool_.close();
    return ran_;
  }
  FairPool& pool() { return pool_; }

 private:
  double now_ = 0;  // of the thread of the pool
  std::string ran_;
  std::promise<void> at_gate_;
  std::promise<void> gate_;
  FairPool pool_;
};

TEST(FairPool, AClientWithManyJobsTakesTurnsWithAnother) {
  OneThread pool;
  for (int i = 0; i < 4; ++i) pool.push({"a", ""}, 10);
  for (int i = 0; i < 2; ++i) pool.push({"b", ""}, 10);
  EXPECT_EQ(pool.run(), "a b a b a a ");
}

TEST(FairPool, ServiceIsTimeAndNotTheNumberOfJobs) {
  OneThread pool;
  for (int i = 0; i < 2; ++i) pool.push({"a", ""}, 30);
  for (int i = 0; i < 5; ++i) pool.push({"b", ""}, 10);
  EXPECT_EQ(pool.run(), "a b b b a b b ");
}

TEST(FairPool, UsersShareTheTurnOfTheirClient) {
  OneThread pool;
  for (const char* user : {"1", "2", "3", "4"}) pool.push({"a", user}, 10);
  pool.push({"a", "1"}, 10);
  pool.push({"b", ""}, 10);
  EXPECT_EQ(pool.run(), "a1 b a2 a3 a4 a1 ");
}

TEST(FairPool, AJobThatIsWithdrawnDoesNotRun) {
  OneThread pool;
  pool.push({"a", ""}, 1);
  const uint64_t second = pool.push({"a", ""}, 1);
  const uint64_t other = pool.push({"b", "x"}, 1);
  EXPECT_TRUE(pool.pool().withdraw(second));
  EXPECT_TRUE(pool.pool().withdraw(other));
  EXPECT_FALSE(pool.pool().withdraw(other));
  EXPECT_FALSE(pool.pool().withdraw(12345));
  EXPECT_EQ(pool.run(), "a ");
}

// Jobs of one client that never end leave a thread to the others.
TEST(FairPool, OneClientDoesNotTakeAllThreads) {
  FairPool pool({.threads = 3});
  std::promise<void> gate;
  const std::shared_future<void> opened = gate.get_future().share();
  std::atomic<int> running{0};
  for (int i = 0; i < 8; ++i)
    pool.push({"hog", std::to_string(i)}, [&running, opened] {
      ++running;
      opened.wait();
    });
  std::promise<void> other;
  pool.push({"other", ""}, [&] { other.set_value(); });
  other.get_future().wait();
  EXPECT_LE(running, 2);
  gate.set_value();
}

TEST(FairPool, ClosingDropsWhatHasNotBegun) {
  std::atomic<int> ran{0};
  const auto held = std::make_shared<int>(1);
  FairPool pool({.threads = 1});
  std::promise<void> begun, gate;
  pool.push({"a", ""}, [&] {
    begun.set_value();
    gate.get_future().wait();
    ++ran;
  });
  begun.get_future().wait();
  for (int i = 0; i < 5; ++i) pool.push({"a", ""}, [&ran, held] { ++ran; });
  gate.set_value();
  pool.close();
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(pool.push({"a", ""}, [&] { ++ran; }), 0u);
  EXPECT_LE(ran, 6);
  EXPECT_GE(ran, 1);
}

}  // namespace
}  // namespace redline
