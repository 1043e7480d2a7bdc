#include "base/worker_team.h"

#include <gtest/gtest.h>

#include <new>
#include <vector>

namespace redline {
namespace {

TEST(WorkerTeam, ParallelForCoversEveryElementOnce) {
  WorkerTeam team(3);
  for (const int64_t count : {0, 1, 6, 7, 8, 101}) {
    std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
    team.parallel_for(count, 7, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
    });
    for (const auto& times : seen) EXPECT_EQ(times, 1) << count;
  }
}

TEST(WorkerTeam, AnExceptionOfAPieceIsThrownWhereItWasStarted) {
  WorkerTeam team(3);
  for (const int64_t place : {0, 50, 99}) {
    const auto fails = [&](int64_t begin, int64_t) {
      if (begin == place) throw std::bad_alloc();
    };
    EXPECT_THROW(team.parallel_for(100, 1, fails), std::bad_alloc) << place;
  }
  std::atomic<int64_t> sum{0};  // the team goes on
  team.parallel_for(100, 1, [&](int64_t begin, int64_t) { sum += begin; });
  EXPECT_EQ(sum, 4950);
}

}  // namespace
}  // namespace redline
