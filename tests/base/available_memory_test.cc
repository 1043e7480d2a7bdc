#include "base/available_memory.h"

#include <gtest/gtest.h>

namespace redline {
namespace {

TEST(AvailableMemory, IsMoreThanAMegabyte) { EXPECT_GT(available_memory(), 1 << 20); }

}  // namespace
}  // namespace redline
