#include "llm/attention_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <tuple>

namespace redline::test {

TEST(AttentionPlan, EveryRowOfEveryHeadIsComputedOnceWhateverTheSlots) {
  std::mt19937 random(3);
  bool any_split = false;
  for (int round = 0; round < 300; ++round) {
    const int slots = 1 + static_cast<int>(random() % 8);
    const int64_t heads = 1 + random() % 5;
    std::vector<SequenceRows> sequences;
    int32_t rows = 0;
    for (size_t s = 0; s < 1 + random() % 4; ++s) {
      const auto n = static_cast<int32_t>(1 + random() % 70);
      sequences.push_back({rows, n, static_cast<int64_t>(random() % 5000)});
      rows += n;
    }
    AttentionPlan plan({slots, heads * 2, heads, 64, rows, 4});
    const int64_t window = round % 3 == 0 ? 300 : 0;
    plan.make(sequences, window);
    ASSERT_EQ(plan.slot_begin().size(), static_cast<size_t>(slots) + 1);
    EXPECT_EQ(plan.slot_begin().front(), 0);
    EXPECT_EQ(plan.slot_begin().back(), static_cast<int32_t>(plan.items().size()));
    std::map<std::pair<int, int>, int> seen;
    std::map<std::tuple<int, int, int64_t>, int> pieces;
    std::map<std::pair<int, int>, int64_t> chunks;
    for (const AttentionItem& item : plan.items()) {
      const SequenceRows& s = sequences[static_cast<size_t>(item.sequence)];
      EXPECT_GE(item.row_begin, s.row_begin);
      EXPECT_LE(item.row_end, s.row_begin + s.rows);
      EXPECT_EQ(item.first_position - s.first_position, item.row_begin - s.row_begin);
      // A piece counts by its chunks; together they must be one whole.
      const int64_t end = item.first_position + item.row_end - item.row_begin;
      const int64_t begin = window > 0 ? std::max<int64_t>(0, item.first_position + 1 - window) : 0;
      for (int32_t r = item.row_begin; r < item.row_end; ++r) {
        if (item.split < 0) {
          ++seen[{r, item.kv_head}];
          continue;
        }
        EXPECT_EQ(item.kv_begin % kKvChunk, 0);
        EXPECT_EQ(item.kv_end % kKvChunk, 0);
        for (int64_t p = item.kv_begin; p < item.kv_end; p += kKvChunk) ++pieces[{r, item.kv_head, p}];
        if (item.kv_begin <= begin && begin < item.kv_begin + kKvChunk) ++seen[{r, item.kv_head}];
        const AttentionSplit& split = plan.splits()[static_cast<size_t>(item.split)];
        chunks[{r, item.kv_head}] = split.chunks;
        EXPECT_EQ(split.chunks, (end + kKvChunk - 1) / kKvChunk - begin / kKvChunk);
      }
    }
    std::map<std::pair<int, int>, int64_t> counted;
    for (const auto& [key, count] : pieces) {
      EXPECT_EQ(count, 1);
      ++counted[{std::get<0>(key), std::get<1>(key)}];
    }
    EXPECT_EQ(counted, chunks);
    any_split = any_split || !plan.splits().empty();
    EXPECT_EQ(seen.size(), static_cast<size_t>(rows * heads));
    for (const auto& [key, count] : seen) EXPECT_EQ(count, 1);
  }
  EXPECT_TRUE(any_split);
}

TEST(AttentionPlan, DecodingAtDepthKeepsEverySlotBusy) {
  // Few heads, more slots: pieces of positions. Where heads divide among the slots nothing is split.
  for (const int slots : {1, 2, 3, 5, 16, 64}) {
    for (const int64_t heads : {1, 2, 8}) {
      AttentionPlan plan({slots, heads * 4, heads, 64, 16, 4});
      const std::vector<SequenceRows> sequences = {{0, 1, 32767}};
      plan.make(sequences, 0);
      EXPECT_EQ(plan.splits().empty(), heads % slots == 0) << slots << " slots, " << heads << " heads";
      int64_t most = 0;
      for (int s = 0; s < slots; ++s) {
        int64_t positions = 0;
        for (int32_t i = plan.slot_begin()[static_cast<size_t>(s)]; i < plan.slot_begin()[static_cast<size_t>(s) + 1];
             ++i) {
          const AttentionItem& item = plan.items()[static_cast<size_t>(i)];
          positions += std::min<int64_t>(item.kv_end, 32768) - item.kv_begin;
        }
        most = std::max(most, positions);
      }
      EXPECT_LE(static_cast<double>(most), 1.3 * static_cast<double>(32768 * heads) / slots + kKvChunk)
          << slots << " slots, " << heads << " heads";
    }
  }
}

TEST(AttentionPlan, WhetherRowsComeAloneDependsOnTheStepAlone) {
  for (const int32_t rows : {1, 15, 16, 17, 31, 33, 65, 97, 300}) {
    for (const int slots : {1, 2, 7, 64}) {
      AttentionPlan plan({slots, 32, 8, 64, 512, 1});
      const std::vector<SequenceRows> sequences = {{0, rows, 10}};
      plan.make(sequences, 0);
      for (const AttentionItem& item : plan.items())
        EXPECT_GE(item.row_end - item.row_begin, std::min(rows, AttentionPlan::kRowGrain)) << rows << " " << slots;
    }
  }
}

TEST(AttentionPlan, NoSlotHasMoreThanItsShareAndOneItem) {
  const std::vector<SequenceRows> sequences = {{0, 512, 0}};
  AttentionPlan plan({4, 32, 8, 64, 512, 1});
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
  AttentionPlan a({3, 8, 2, 64, 64, 2}), b({3, 8, 2, 64, 64, 2});
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
