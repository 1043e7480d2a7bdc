#include <gtest/gtest.h>

#include "kernels/tiles/block.h"

namespace redline::tiles {
namespace {

constexpr uint64_t kSecond = 1'000'000'000, kMillisecond = 1'000'000;

/// Polls every `step` ns from `clock` on, which has jumped by `jump` after `before` polls. The time that has really
/// passed when the wait gives up.
double seconds_until_late(uint64_t limit, uint64_t step, uint64_t clock = kSecond, int64_t jump = 0,
                          uint64_t before = 10) {
  WaitTime waited;
  uint64_t polls = 0;
  while (!waited.exceeds(clock, limit)) {
    ++polls;
    clock += step + (polls == before ? static_cast<uint64_t>(jump) : 0);
  }
  return static_cast<double>(polls * step) / static_cast<double>(kSecond);
}

// Two units of about a millisecond: the one that has begun, and the one past the limit.
TEST(WaitTime, IsThatOfTheClock) {
  for (const uint64_t limit : {2 * kSecond, 60 * kSecond})
    for (const uint64_t step : {kMillisecond / 16, kMillisecond * 3, kMillisecond * 100})
      EXPECT_NEAR(seconds_until_late(limit, step), static_cast<double>(limit) / 1e9,
                  2e-3 + static_cast<double>(step) / 1e9);
  EXPECT_NEAR(seconds_until_late(kMillisecond / 2, kMillisecond / 16), 0, 2.2e-3);
}

// The host takes a step that has taken less than half of the limit for one that has ended.
TEST(WaitTime, JumpsOfTheClockCountLittle) {
  constexpr uint64_t kHour = 3600 * kSecond;
  for (const int64_t jump : {static_cast<int64_t>(kHour), -static_cast<int64_t>(kHour), -static_cast<int64_t>(kSecond)})
    EXPECT_NEAR(seconds_until_late(2 * kSecond, kMillisecond, 2 * kHour, jump), 1.75, 0.01) << jump;
}

TEST(WaitTime, IsNotTooLongWhereAProcessSharesTheDevice) {
  // Polls are further apart than an eighth of the limit.
  EXPECT_LE(seconds_until_late(kSecond / 20, kMillisecond * 20), 0.2);
}

// The lower bits of the clock, which come round after 52 days.
TEST(WaitTime, GoesOnWhereTheUnitsComeRound) {
  const uint64_t round = uint64_t{1} << 52;
  EXPECT_NEAR(seconds_until_late(2 * kSecond, kMillisecond, round - kSecond), 2, 0.01);
}

TEST(WaitTime, NeverEndsWithoutALimit) {
  WaitTime waited;
  for (uint64_t clock = kSecond; clock < 86400 * 100 * kSecond; clock += 3600 * kSecond)
    ASSERT_FALSE(waited.exceeds(clock, static_cast<uint64_t>(1e18)));
}

}  // namespace
}  // namespace redline::tiles
