// The meter behind the memory bounds of the other tests here really counts.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "support/heap_meter_new.h"

namespace redline {
namespace {

TEST(HeapMeter, SeesThePeak) {
  std::vector<char> before(100000);
  const HeapMeter meter;
  { const std::vector<char> large(1 << 20); }
  const std::vector<char> small(1000);
  EXPECT_GE(meter.peak_growth(), 1 << 20);
  EXPECT_LT(meter.peak_growth(), (1 << 20) + 100000);
}

}  // namespace
}  // namespace redline
