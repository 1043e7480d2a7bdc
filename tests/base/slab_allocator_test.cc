#include "base/slab_allocator.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

namespace redline {
namespace {

class SlabAllocatorSizes : public ::testing::TestWithParam<int64_t> {};

TEST_P(SlabAllocatorSizes, HandsOutEverySlotOnceLowestFirst) {
  const int64_t capacity = GetParam();
  SlabAllocator slab(capacity);
  for (int64_t slot = 0; slot < capacity; ++slot) ASSERT_EQ(slab.allocate(), slot);
  EXPECT_EQ(slab.allocate(), std::nullopt);
  EXPECT_EQ(slab.num_free(), 0);
  for (int64_t slot = capacity; slot-- > 0;) {
    slab.free(slot);
    ASSERT_EQ(slab.allocate(), slot);  // the only free one
    slab.free(slot);
  }
  EXPECT_EQ(slab.num_free(), capacity);
}

INSTANTIATE_TEST_SUITE_P(Capacities, SlabAllocatorSizes, ::testing::Values(0, 1, 63, 64, 65, 4095, 4096, 4097));

RC_GTEST_PROP(SlabAllocator, BehavesAsASetOfFreeSlots, ()) {
  const int64_t capacity = *rc::gen::elementOf(std::vector<int64_t>{1, 2, 63, 64, 65, 130, 4097});
  SlabAllocator slab(capacity);
  std::set<int64_t> free, taken;
  for (int64_t slot = 0; slot < capacity; ++slot) free.insert(slot);
  for (int step = 0; step < 300; ++step) {
    const int kind = *rc::gen::inRange(0, 3);
    const int64_t slot = *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<int64_t>(0, capacity));
    if (kind <= 1) {
      const auto got = slab.allocate();
      RC_ASSERT(got == (free.empty() ? std::nullopt : std::optional<int64_t>(*free.begin())));
      if (got) free.erase(*got), taken.insert(*got);
    } else if (!taken.empty()) {
      const auto victim = taken.lower_bound(slot) == taken.end() ? taken.begin() : taken.lower_bound(slot);
      slab.free(*victim);
      free.insert(*victim), taken.erase(victim);
    }
    RC_ASSERT(slab.num_free() == int64_t(free.size()));
    RC_ASSERT(slab.is_allocated(slot) == (taken.count(slot) == 1));
  }
}

TEST(SlabAllocatorDeathTest, CatchesASecondFree) {
  SlabAllocator slab(3);
  EXPECT_DEATH(slab.free(1), "is_allocated");
  ASSERT_EQ(slab.allocate(), 0);
  slab.free(0);
  EXPECT_DEATH(slab.free(0), "is_allocated");
  EXPECT_DEATH(slab.free(3), "capacity");
  EXPECT_DEATH(slab.free(-1), "capacity");
}

}  // namespace
}  // namespace redline
