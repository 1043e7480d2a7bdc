// Ranks as threads: sums in the order of ranks, gathered bytes, rounds one after the other, and failures in bounded
// time.
#include "ranks/rank_group.h"

#include <gmock/gmock.h>

#include <cmath>
#include <random>
#include <thread>

namespace redline::testing {
namespace {

using ::testing::HasSubstr;

/// Runs body(group) for each rank on its own thread.
template <class Body>
void on_all(const std::vector<std::shared_ptr<RankGroup>>& ranks, const Body& body) {
  std::vector<std::thread> threads;
  for (const auto& group : ranks) threads.emplace_back([&] { body(*group); });
  for (std::thread& thread : threads) thread.join();
}

std::vector<std::shared_ptr<RankGroup>> make_ranks(int size, double timeout_seconds = 30) {
  auto ranks = make_thread_ranks(size, {.timeout_seconds = timeout_seconds});
  EXPECT_TRUE(ranks.ok()) << ranks.status().to_string();
  return std::move(ranks).value();
}

std::vector<float> values_of(int rank, size_t count) {
  std::mt19937 random(static_cast<uint32_t>(rank * 100) + static_cast<uint32_t>(count));
  std::vector<float> values(count);
  for (float& v : values) v = std::ldexp(std::normal_distribution<float>()(random), static_cast<int>(random() % 20));
  return values;
}

TEST(RankGroup, AllReduceSumsInTheOrderOfRanks) {
  for (const int size : {1, 2, 3, 4, 7}) {
    const auto ranks = make_ranks(size);
    for (const size_t count : {size_t{0}, size_t{1}, size_t{15}, size_t{16}, size_t{17}, size_t{101}, size_t{4096}}) {
      std::vector<float> want = values_of(0, count);
      for (int r = 1; r < size; ++r)
        for (size_t i = 0; i < count; ++i) want[i] = want[i] + values_of(r, count)[i];
      on_all(ranks, [&](RankGroup& group) {
        std::vector<float> values = values_of(group.rank(), count);
        EXPECT_TRUE(group.all_reduce(std::span<float>(values)).ok());
        EXPECT_EQ(values, want) << size << " ranks, " << count << " values, rank " << group.rank();
        std::vector<double> one(count, 1.0 / 3);
        EXPECT_TRUE(group.all_reduce(std::span<double>(one)).ok());
        double thirds = 1.0 / 3;
        for (int r = 1; r < size; ++r) thirds += 1.0 / 3;
        EXPECT_EQ(one, std::vector<double>(count, thirds));
      });
    }
  }
}

TEST(RankGroup, AllGatherKeepsTheOrderOfRanks) {
  const auto ranks = make_ranks(3);
  on_all(ranks, [&](RankGroup& group) {
    const std::vector<uint8_t> mine(5, static_cast<uint8_t>(group.rank() + 1));
    std::vector<uint8_t> all(15);
    EXPECT_TRUE(group.all_gather(mine, all).ok());
    EXPECT_EQ(all, (std::vector<uint8_t>{1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3}));
  });
}

// The other ranks do not wait for a rank that could not take part.
TEST(RankGroup, AWrongSizeOfAllGatherFailsTheGroup) {
  const auto ranks = make_ranks(3, 60);
  on_all(ranks, [&](RankGroup& group) {
    const std::vector<uint8_t> mine(5);
    std::vector<uint8_t> all(group.rank() == 1 ? 14 : 15);
    EXPECT_EQ(group.all_gather(mine, all).code(), Code::invalid_argument);
  });
}

// A rank frees its part only when no other rank reads it, also after a failure in the middle of a sum.
TEST(RankGroup, PartsLiveUntilNoRankReadsThem) {
  for (int group_number = 0; group_number < 50; ++group_number) {
    const auto ranks = make_ranks(3, 60);
    on_all(ranks, [&](RankGroup& group) {
      for (int round = 0; group.status().ok(); ++round) {
        std::vector<float> values(20'000, 1.0f);  // freed after each round
        if (group.rank() == 2 && round == group_number % 7) group.fail(Status(Code::internal, "rank 2 fails"));
        const Status status = group.all_reduce(std::span<float>(values));
        EXPECT_TRUE(!status.ok() || values.front() == 3.0f);
      }
    });
  }
}

TEST(RankGroup, RanksThatShareARuntimeAreRefused) {
  const auto ranks = make_ranks(2);
  const int first = 0, second = 0;
  EXPECT_TRUE(ranks[0]->claim(&first).ok());
  EXPECT_TRUE(ranks[0]->claim(&first).ok());
  EXPECT_EQ(ranks[1]->claim(&first).message(), "ranks 0 and 1 share a runtime; each rank needs one of its own");
  EXPECT_TRUE(ranks[1]->claim(&second).ok());
}

// No rank is a round ahead of the others: what a rank has written before a barrier is seen by all behind it.
TEST(RankGroup, BarrierOrdersRounds) {
  constexpr int kRounds = 100;
  const auto ranks = make_ranks(4);
  std::vector<int> counts(4, 0);  // each written by its rank only
  on_all(ranks, [&](RankGroup& group) {
    for (int round = 1; round <= kRounds; ++round) {
      counts[static_cast<size_t>(group.rank())] = round;
      ASSERT_TRUE(group.barrier().ok());
      for (const int count : counts) EXPECT_EQ(count, round);
      ASSERT_TRUE(group.barrier().ok());
    }
  });
}

TEST(RankGroup, ExchangesOfDifferentNamesDoNotMeet) {
  const auto ranks = make_ranks(2);
  on_all(ranks, [&](RankGroup& group) {
    const float mine[] = {static_cast<float>(group.rank()), 10};
    // Both arrive at the two exchanges before they read either, in opposite orders.
    RankExchange &a = group.exchange("a"), &b = group.exchange("b");
    RankExchange& first = group.rank() == 0 ? a : b;
    RankExchange& second = group.rank() == 0 ? b : a;
    first.arrive(mine, sizeof(float));
    second.arrive(mine, sizeof(float));
    for (RankExchange* each : {&a, &b}) {
      const auto parts = each->parts();
      ASSERT_EQ(parts.size(), 2u);
      for (int r = 0; r < 2; ++r) EXPECT_EQ(*static_cast<const float*>(parts[static_cast<size_t>(r)]), r);
    }
    a.leave();
    b.leave();
  });
  EXPECT_TRUE(ranks[0]->status().ok());
}

TEST(RankGroup, ARankThatDoesNotComeIsNamed) {
  const auto ranks = make_ranks(3, 0.2);
  on_all(ranks, [&](RankGroup& group) {
    if (group.rank() == 1) return;
    std::vector<float> values(4);
    const Status status = group.all_reduce(std::span<float>(values));
    EXPECT_EQ(status.code(), Code::internal);
    EXPECT_THAT(status.message(), HasSubstr("all_reduce: of 3 ranks, 1 did not arrive within 0.2 s"));
  });
  // The group stays as it is: a later operation would meet an earlier round of another rank.
  EXPECT_FALSE(ranks[1]->barrier().ok());
}

TEST(RankGroup, AFailureEndsAllWaits) {
  const auto ranks = make_ranks(2, 60);
  on_all(ranks, [&](RankGroup& group) {
    if (group.rank() == 1) return group.fail(Status(Code::out_of_memory, "rank 1: no memory"));
    std::vector<float> values(4);
    EXPECT_EQ(group.all_reduce(std::span<float>(values)).code(), Code::out_of_memory);
  });
  EXPECT_EQ(ranks[0]->status().message(), "rank 1: no memory");
}

TEST(RankGroup, PartsOfDifferentSizesAreAnError) {
  const auto ranks = make_ranks(2);
  on_all(ranks, [&](RankGroup& group) {
    std::vector<float> values(group.rank() == 0 ? 4 : 5);
    const std::string message(group.all_reduce(std::span<float>(values)).message());
    EXPECT_THAT(message, ::testing::AnyOf(HasSubstr("rank 1 has 20 bytes, another one 16"),
                                          HasSubstr("rank 0 has 16 bytes, another one 20")));
  });
}

TEST(RankGroup, ImpossibleSizesAreErrors) {
  for (const int size : {-1, 0, 65}) EXPECT_EQ(make_thread_ranks(size).status().code(), Code::invalid_argument);
}

}  // namespace
}  // namespace redline::testing
