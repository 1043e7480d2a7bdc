#include "base/utc_time.h"

#include <gtest/gtest.h>

namespace redline {
namespace {

// The expected texts are those of `date -u -d @SECONDS +%FT%TZ`.
TEST(UtcTime, IsWrittenAsRfc3339) {
  EXPECT_EQ(utc_text(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(utc_text(951782399), "2000-02-28T23:59:59Z");
  EXPECT_EQ(utc_text(951782400), "2000-02-29T00:00:00Z");
  EXPECT_EQ(utc_text(4102444800), "2100-01-01T00:00:00Z");
}

TEST(UtcTime, MillisecondsAreCutNotRounded) {
  EXPECT_EQ(utc_text_ms(951782399.9999), "2000-02-28T23:59:59.999Z");
  EXPECT_EQ(utc_text_ms(1.0625), "1970-01-01T00:00:01.062Z");
  EXPECT_EQ(utc_text_ms(-0.5), "1969-12-31T23:59:59.500Z");
}

TEST(UtcTime, NowIsAfterThisWasWritten) {
  EXPECT_GT(unix_time(), 1760000000);
  EXPECT_LE(static_cast<double>(unix_time()), unix_now());
}

}  // namespace
}  // namespace redline
