#include "llm/attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "graph/ops/attention.h"
#include "graph/ops/kv_append.h"
#include "llm/stepper.h"

namespace redline::test {

TEST(AttentionPlan, EveryRowOfEveryHeadIsComputedOnceWhateverThePartitions) {
  std::mt19937 random(3);
  bool any_split = false;
  for (int round = 0; round < 300; ++round) {
    const int partitions = 1 + static_cast<int>(random() % 8);
    const int64_t heads = 1 + random() % 5;
    std::vector<SequenceRows> sequences;
    int32_t rows = 0;
    for (size_t s = 0; s < 1 + random() % 4; ++s) {
      const auto n = static_cast<int32_t>(1 + random() % 70);
      sequences.push_back({rows, n, static_cast<int64_t>(random() % 5000)});
      rows += n;
    }
    AttentionPlan plan({{partitions}, heads * 2, heads, 64, rows, 4});
    const int64_t window = round % 3 == 0 ? 300 : 0;
    plan.make(sequences, window);
    ASSERT_EQ(plan.partition_begin().size(), static_cast<size_t>(partitions) + 1);
    EXPECT_EQ(plan.partition_begin().front(), 0);
    EXPECT_EQ(plan.partition_begin().back(), static_cast<int32_t>(plan.items().size()));
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

/// Runs a plan on names instead of numbers: the chunks of each row and head that reach the result, in order.
std::map<std::pair<int, int>, std::vector<int64_t>> chunks_in_order(AttentionPlan& plan, int64_t group,
                                                                    int64_t head_dim) {
  using Chunks = std::vector<std::tuple<int, int, int64_t>>;  // row, head of all query heads, chunk
  std::map<int64_t, Chunks> partials;                         // by offset
  std::map<int32_t, int> finished, head_of;
  std::map<std::pair<int, int>, std::vector<int64_t>> seen;
  const int64_t size = attention_partial_floats(head_dim);
  for (const AttentionItem& item : plan.items()) {
    if (item.split < 0) continue;
    const int64_t lines = (item.row_end - item.row_begin) * group;
    for (int64_t chunk = item.kv_begin / kKvChunk; chunk < item.kv_end / kKvChunk; ++chunk) {
      for (int64_t line = 0; line < lines; ++line) {
        const int64_t r = item.row_begin + line / group;
        const int row = item.is_group ? plan.group_rows()[static_cast<size_t>(r)] : static_cast<int>(r);
        const int64_t at = item.merges_chunks ? 0 : chunk - item.kv_begin / kKvChunk;
        Chunks& here = partials[item.partials + (at * lines + line) * size];
        EXPECT_TRUE(item.merges_chunks || here.empty()) << "written twice";
        here.emplace_back(row, static_cast<int>(item.kv_head * group + line % group), chunk);
      }
    }
    for (int k = 0; k < item.num_splits; ++k) {
      ++finished[item.split + k];
      head_of[item.split + k] = item.kv_head;
    }
  }
  for (size_t i = 0; i < plan.splits().size(); ++i) {
    const AttentionSplit& split = plan.splits()[i];
    EXPECT_EQ(finished[static_cast<int32_t>(i)], split.pieces);
    const int64_t lines = (split.row_end - split.row_begin) * group;
    for (int64_t line = 0; line < lines; ++line) {
      const auto row = static_cast<int>(split.row_begin + line / group);
      const auto head = static_cast<int>(head_of[static_cast<int32_t>(i)] * group + line % group);
      std::vector<int64_t>& all = seen[{row, head}];
      EXPECT_TRUE(all.empty()) << "row " << row << " has two results";
      const auto take = [&](int64_t offset) {
        EXPECT_TRUE(partials.contains(offset));
        for (const auto& [r, h, chunk] : partials[offset]) {
          EXPECT_EQ(r, row);
          EXPECT_EQ(h, head);
          all.push_back(chunk);
        }
      };
      for (int64_t k = 0; k < split.num_shared; ++k) take(split.shared + k * split.shared_stride + line * size);
      for (int64_t k = 0; k < split.chunks; ++k) take(split.partials + (k * lines + line) * size);
    }
  }
  return seen;
}

TEST(AttentionPlan, SequencesWithCommonPagesReadThemTogether) {
  constexpr int64_t kRowThreshold = 9;
  std::mt19937 random(5);
  int with_groups = 0, with_pieces = 0, nested = 0;
  for (int round = 0; round < 400; ++round) {
    const int partitions = 1 + static_cast<int>(random() % 8);
    const int64_t heads = 1 + random() % 4, group = 1 + random() % 4, head_dim = 64;
    // A page table is that of an earlier sequence up to some page, then its own pages.
    std::vector<SequenceRows> sequences;
    std::vector<std::vector<int32_t>> tables;
    int32_t rows = 0, next_page = 0;
    for (size_t s = 0; s < 2 + random() % 12; ++s) {
      const auto n = static_cast<int32_t>(random() % 3 == 0 ? 1 + random() % 60 : 1);
      const auto first = static_cast<int64_t>(random() % 3000);
      std::vector<int32_t>& table = tables.emplace_back();
      if (s > 0) {
        const std::vector<int32_t>& other = tables[random() % s];
        table.assign(other.begin(), other.begin() + static_cast<int64_t>(random() % (other.size() + 1)));
      }
      const auto pages = static_cast<size_t>((first + n + kKvPageTokens - 1) / kKvPageTokens);
      table.resize(std::min(table.size(), pages));
      while (table.size() < pages) table.push_back(next_page++);
      sequences.push_back({rows, n, first});
      rows += n;
    }
    std::vector<const int32_t*> pages;
    for (const std::vector<int32_t>& table : tables) pages.push_back(table.data());
    AttentionPlan plan({{partitions, kRowThreshold}, heads * group, heads, head_dim, rows, 16});
    plan.make(sequences, 0, pages);
    auto seen = chunks_in_order(plan, group, head_dim);
    std::set<int> group_sizes;
    for (const AttentionItem& item : plan.items()) {
      if (item.split < 0) {
        for (int32_t r = item.row_begin; r < item.row_end; ++r)
          for (int64_t g = 0; g < group; ++g) {
            EXPECT_TRUE((seen[{r, static_cast<int>(item.kv_head * group + g)}].empty()));
            const SequenceRows& s = sequences[static_cast<size_t>(item.sequence)];
            auto& all = seen[{r, static_cast<int>(item.kv_head * group + g)}];
            for (int64_t c = 0; c < (s.first_position + s.rows + kKvChunk - 1) / kKvChunk; ++c) all.push_back(c);
          }
        continue;
      }
      if (!item.is_group) continue;
      group_sizes.insert(item.num_splits * 10000 + static_cast<int>(item.kv_end));
      with_pieces += item.kv_begin > 0;
      EXPECT_GE(item.first_position, item.kv_end);
      EXPECT_LE((item.row_end - item.row_begin) * group, AttentionPlan::kMaxQueryRows);
      // Its pages are those of every sequence in it.
      for (int32_t i = item.row_begin; i < item.row_end; ++i) {
        const int32_t row = plan.group_rows()[static_cast<size_t>(i)];
        const auto of = std::find_if(sequences.begin(), sequences.end(), [&](const SequenceRows& s) {
          return row >= s.row_begin && row < s.row_begin + s.rows;
        });
        EXPECT_LE(item.kv_end, of->first_position);
        EXPECT_EQ(of->rows * group < kRowThreshold, item.has_few_rows);
        const auto& table = tables[static_cast<size_t>(of - sequences.begin())];
        const auto& shared = tables[static_cast<size_t>(item.sequence)];
        const auto end = item.kv_end / kKvPageTokens;
        EXPECT_TRUE(std::equal(table.begin(), table.begin() + end, shared.begin(), shared.begin() + end));
      }
    }
    with_groups += !group_sizes.empty();
    nested += group_sizes.size() > 1;
    ASSERT_EQ(seen.size(), static_cast<size_t>(rows * heads * group));
    for (const auto& [key, chunks] : seen) {
      const auto of = std::find_if(sequences.begin(), sequences.end(), [&](const SequenceRows& s) {
        return key.first >= s.row_begin && key.first < s.row_begin + s.rows;
      });
      // A row of a longer item may come with a chunk that it does not see.
      std::vector<int64_t> want;
      for (int64_t c = 0; c < (of->first_position + of->rows + kKvChunk - 1) / kKvChunk; ++c) want.push_back(c);
      if (chunks.size() < want.size()) {
        want.resize(chunks.size());
        EXPECT_LE(of->first_position + key.first - of->row_begin, std::ssize(chunks) * kKvChunk - 1);
      }
      ASSERT_EQ(chunks, want) << "row " << key.first << " head " << key.second << " in round " << round;
    }
  }
  EXPECT_GT(with_groups, 100);
  EXPECT_GT(with_pieces, 10);
  EXPECT_GT(nested, 10);
}

TEST(AttentionPlan, AGroupIsMadeOnlyWhereItSavesReads) {
  std::vector<int32_t> table(64);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
  const std::vector<const int32_t*> pages(16, table.data());
  const auto groups = [&](int64_t position, int32_t rows, size_t count, int64_t window) {
    std::vector<SequenceRows> sequences;
    for (size_t s = 0; s < count; ++s) sequences.push_back({static_cast<int32_t>(s) * rows, rows, position});
    AttentionPlan plan({{2}, 14, 2, 64, 16 * 64, 16});
    plan.make(sequences, window, std::span(pages).first(count));
    return std::any_of(plan.items().begin(), plan.items().end(), [](const AttentionItem& i) { return i.is_group; });
  };
  EXPECT_TRUE(groups(1000, 1, 16, 0));
  EXPECT_TRUE(groups(1000, 1, 2, 0));
  EXPECT_FALSE(groups(1000, 1, 1, 0));
  EXPECT_FALSE(groups(255, 1, 16, 0));     // no whole chunk
  EXPECT_FALSE(groups(1000, 1, 16, 300));  // windows
  EXPECT_TRUE(groups(1000, 4, 16, 0));
  EXPECT_FALSE(groups(300, 15, 16, 0));  // partial results of 15 rows are more than the keys of one chunk
}

TEST(AttentionPlan, WhatTheCacheOfACoreHoldsIsNotGrouped) {
  std::vector<int32_t> table(300, 3);
  const std::vector<const int32_t*> pages(8, table.data());
  const auto groups = [&](int64_t position) {
    std::vector<SequenceRows> sequences;
    for (int32_t s = 0; s < 8; ++s) sequences.push_back({s, 1, position});
    AttentionPlan plan({{2}, 14, 2, 64, 64, 8, 2, 1 << 20});  // 4096 positions of a head
    plan.make(sequences, 0, pages);
    return std::any_of(plan.items().begin(), plan.items().end(), [](const AttentionItem& i) { return i.is_group; });
  };
  EXPECT_FALSE(groups(4096 + 255));
  EXPECT_TRUE(groups(4096 + 256));
}

TEST(AttentionPlan, DecodingAtDepthKeepsEverySlotBusy) {
  // Few heads, more partitions: pieces of positions. Where heads divide among the partitions nothing is split.
  for (const int partitions : {1, 2, 3, 5, 16, 64}) {
    for (const int64_t heads : {1, 2, 8}) {
      AttentionPlan plan({{partitions}, heads * 4, heads, 64, 16, 4});
      const std::vector<SequenceRows> sequences = {{0, 1, 32767}};
      plan.make(sequences, 0);
      EXPECT_EQ(plan.splits().empty(), heads % partitions == 0) << partitions << " partitions, " << heads << " heads";
      int64_t most = 0;
      for (int s = 0; s < partitions; ++s) {
        int64_t positions = 0;
        for (int32_t i = plan.partition_begin()[static_cast<size_t>(s)];
             i < plan.partition_begin()[static_cast<size_t>(s) + 1]; ++i) {
          const AttentionItem& item = plan.items()[static_cast<size_t>(i)];
          positions += std::min<int64_t>(item.kv_end, 32768) - item.kv_begin;
        }
        most = std::max(most, positions);
      }
      EXPECT_LE(static_cast<double>(most), 1.3 * static_cast<double>(32768 * heads) / partitions + kKvChunk)
          << partitions << " partitions, " << heads << " heads";
    }
  }
}

TEST(AttentionPlan, WhetherRowsComeAloneDependsOnTheStepAlone) {
  for (const int32_t rows : {1, 15, 16, 17, 31, 33, 65, 97, 300}) {
    for (const int partitions : {1, 2, 7, 64}) {
      AttentionPlan plan({{partitions}, 32, 8, 64, 512, 1});
      const std::vector<SequenceRows> sequences = {{0, rows, 10}};
      plan.make(sequences, 0);
      for (const AttentionItem& item : plan.items())
        EXPECT_GE(item.row_end - item.row_begin, std::min(rows, AttentionPlan::kRowGrain)) << rows << " " << partitions;
    }
  }
}

TEST(AttentionPlan, NoSlotHasMoreThanItsShareAndOneItem) {
  const std::vector<SequenceRows> sequences = {{0, 512, 0}};
  AttentionPlan plan({{4}, 32, 8, 64, 512, 1});
  plan.make(sequences, 0);
  int64_t total = 0, largest_item = 0, largest_partition = 0;
  for (int s = 0; s < 4; ++s) {
    int64_t load = 0;
    for (int32_t i = plan.partition_begin()[static_cast<size_t>(s)];
         i < plan.partition_begin()[static_cast<size_t>(s) + 1]; ++i) {
      const AttentionItem& item = plan.items()[static_cast<size_t>(i)];
      const int64_t cost = (item.row_end - item.row_begin) * (item.first_position + item.row_end - item.row_begin);
      load += cost;
      largest_item = std::max(largest_item, cost);
    }
    total += load;
    largest_partition = std::max(largest_partition, load);
  }
  EXPECT_LE(largest_partition, total / 4 + largest_item);
}

TEST(AttentionPlan, MakingAPlanIsRepeatable) {
  const std::vector<SequenceRows> sequences = {{0, 33, 7}, {33, 1, 400}};
  AttentionPlan a({{3}, 8, 2, 64, 64, 2}), b({{3}, 8, 2, 64, 64, 2});
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

// Rows that are not causal read all positions of their sequence, whatever their own position is.
TEST(AttentionPlan, RowsWithoutIsCausalReadTheWholeSequence) {
  std::mt19937 random(5);
  bool any_split = false;
  for (int round = 0; round < 100; ++round) {
    const int partitions = 1 + static_cast<int>(random() % 8);
    std::vector<SequenceRows> sequences;
    std::vector<int64_t> lengths;
    int32_t rows = 0;
    for (size_t s = 0; s < 1 + random() % 4; ++s) {
      const auto n = static_cast<int32_t>(1 + random() % 40);
      sequences.push_back({rows, n, static_cast<int64_t>(random() % 100)});
      lengths.push_back(static_cast<int64_t>(random() % 5000) * static_cast<int64_t>(random() % 3 > 0));
      rows += n;
    }
    AttentionPlan plan({{partitions}, 2, 1, 64, rows, 4});
    plan.make(sequences, AttentionReach{.is_causal = false, .lengths = lengths});
    std::map<int, int64_t> chunks;  // chunks that are read for a row
    for (const AttentionItem& item : plan.items()) {
      const int64_t all = (lengths[static_cast<size_t>(item.sequence)] + kKvChunk - 1) / kKvChunk;
      any_split |= item.split >= 0;
      for (int32_t r = item.row_begin; r < item.row_end; ++r)
        chunks[r] += item.split < 0 ? all : (item.kv_end - item.kv_begin) / kKvChunk;
      if (item.split >= 0) {
        EXPECT_EQ(plan.splits()[static_cast<size_t>(item.split)].chunks, all);
      }
    }
    for (size_t s = 0; s < sequences.size(); ++s)
      for (int32_t r = sequences[s].row_begin; r < sequences[s].row_begin + sequences[s].rows; ++r) {
        ASSERT_EQ(chunks.count(r), 1u) << r;
        EXPECT_EQ(chunks[r], (lengths[s] + kKvChunk - 1) / kKvChunk);
      }
  }
  EXPECT_TRUE(any_split);
}

// The pool of a text engine has the states of one graph, and a prompt may be cut into steps.
TEST(AttentionPlan, SteppersRefuseAttentionThatIsNotCausal) {
  const auto message = [](bool is_cross) {
    GraphBuilder g("test");
    const Value q = g.input("q", DType::kF32, {Dim(Symbol::kTokens), Dim(16)});
    StateAttrs state;
    state.num_heads = 1, state.head_dim = 16;
    if (is_cross) state.group = "encoder";
    const Value cache = g.state("cache", state);
    g.output("y", attention(g, q, is_cross ? cache : kv_append(g, q, q, cache),
                            AttentionAttrs{.num_heads = 1, .scale = 1, .is_causal = false}));
    StepModel model;
    model.graph = std::move(g.finish()).value();
    model.vocab_size = 8, model.context = 64;
    RuntimeResources runtime(1, *cpu_kernels().value());
    const auto stepper = Stepper::make(std::move(model), {}, {}, runtime);
    EXPECT_EQ(stepper.status().code(), Code::unsupported);
    return stepper.status().message();
  };
  EXPECT_EQ(
      message(true),
      "attention over the states of group \"encoder\": text is generated by causal attention over its own tokens");
  EXPECT_EQ(message(false), "attention that is not causal: text is generated by causal attention over its own tokens");
}

}  // namespace redline::test
