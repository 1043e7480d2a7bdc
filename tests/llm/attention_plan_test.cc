#include "llm/attention_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace redline::test {

TEST(AttentionPlan, EveryRowOfEveryHeadIsComputedOnceWhateverTheSlots) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const int slots = 1 + static_cast<int>(random() % 8);
    const int64_t heads = 1 + random() % 5;
    std::vector<SequenceRows> sequences;
    int32_t rows = 0;
    for (size_t s = 0; s < 1 + random() % 4; ++s) {
      const auto n = static_cast<int32_t>(1 + random() % 70);
      sequences.push_back({rows, n, static_cast<int64_t>(random() % 500)});
      rows += n;
    }
    AttentionPlan plan(slots, heads, rows, 4);
    plan.make(sequences, round % 3 == 0 ? 16 : 0);
    ASSERT_EQ(plan.slot_begin().size(), static_cast<size_t>(slots) + 1);
    EXPECT_EQ(plan.slot_begin().front(), 0);
    EXPECT_EQ(plan.slot_begin().back(), static_cast<int32_t>(plan.items().size()));
    std::map<std::pair<int, int>, int> seen;
    for (const AttentionItem& item : plan.items()) {
      const SequenceRows& s = sequences[static_cast<size_t>(item.sequence)];
      EXPECT_GE(item.row_begin, s.row_begin);
      EXPECT_LE(item.row_end, s.row_begin + s.rows);
      EXPECT_EQ(item.first_position - s.first_position, item.row_begin - s.row_begin);
      for (int32_t r = item.row_begin; r < item.row_end; ++r) ++seen[{r, item.kv_head}];
    }
    EXPECT_EQ(seen.size(), static_cast<size_t>(rows * heads));
    for (const auto& [key, count] : seen) EXPECT_EQ(count, 1);
  }
}

TEST(AttentionPlan, NoSlotHasMoreThanItsShareAndOneItem) {
  const std::vector<SequenceRows> sequences = {{0, 512, 0}};
  AttentionPlan plan(4, 8, 512, 1);
  plan.make(sequences, 0);
  int64_t total = 0, largest_item = 0, largest_slot = 0;
  for (int s = 0; s < 4; ++s) {
    int64_t load = 0;
    for (int32_t i = plan.slot_begin()[static_cast<size_t>(s)]; i < plan.slot_begin()[static_cast<size_t>(s) + 1];
         ++i) {
      const AttentionItem& item = plan.items()[static_cast<size_t>(i)];
      const int64_t cost = (item.row_end - item.row_begin) * (item.first_position + item.row_end - item.row_begin);
      load += cost;
      largest_item = std::max(largest_item, cost);
    }
    total += load;
    largest_slot = std::max(largest_slot, load);
  }
  EXPECT_LE(largest_slot, total / 4 + largest_item);
}

TEST(AttentionPlan, MakingAPlanIsRepeatable) {
  const std::vector<SequenceRows> sequences = {{0, 33, 7}, {33, 1, 400}};
  AttentionPlan a(3, 2, 64, 2), b(3, 2, 64, 2);
  a.make(sequences, 0);
  b.make({}, 0);
  EXPECT_TRUE(b.items().empty());
  b.make(sequences, 0);
  ASSERT_EQ(a.items().size(), b.items().size());
  for (size_t i = 0; i < a.items().size(); ++i) {
    EXPECT_EQ(a.items()[i].row_begin, b.items()[i].row_begin);
    EXPECT_EQ(a.items()[i].kv_head, b.items()[i].kv_head);
  }
}

}  // namespace redline::test
