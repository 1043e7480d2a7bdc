// Pages of sequences: layout, growth, copy on write, windows, and recurrent states.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <set>

#include "backends/cpu/cpu_program.h"
#include "llm/written_pool.h"
#include "support/kv_page_layout.h"

namespace redline::test {

TEST(StatePlan, HeadsOfAStateLieWhereTheLayoutSays) {
  const Graph graph = graph_of({key_values(2, 20), key_values(3, 5), key_values(1, 64)});
  const StatePlan plan = plan_states(graph, StateStorage::kDevice);
  ASSERT_EQ(plan.groups.size(), 1u);
  std::set<int64_t> places;  // byte offsets in a page
  for (ValueId id = 0; id < 3; ++id) {
    const StateAttrs& a = graph.value(id).state;
    const KvPlace place = plan.kv_place(graph, id);
    StateStep step;
    step.page_bytes = plan.groups[0].page_bytes;
    const int64_t width = kv_head_width(a.head_dim);
    for (const KvTable table : {KvTable::kKeys, KvTable::kValues}) {
      const Layout layout = kv_page_layout(a, table, 4);
      for (int64_t head = 0; head < a.num_heads; ++head) {
        const KvHeadView view = kv_head(place, step, head);
        EXPECT_EQ(view.page_stride * 2, step.page_bytes);
        for (int64_t token = 0; token < kKvPageTokens; ++token)
          for (int64_t d = 0; d < width; ++d) {
            // As KvHeadView says.
            const int64_t in_head = table == KvTable::kKeys
                                        ? ((token / 16 * (width / 2) + d / 2) * 16 + token % 16) * 2 + d % 2
                                        : (token / 2 * width + d) * 2 + token % 2;
            const auto* data = static_cast<const uint16_t*>(table == KvTable::kKeys ? view.k : view.v) + in_head;
            const int64_t bytes = reinterpret_cast<const uint8_t*>(data) - static_cast<const uint8_t*>(nullptr);
            const Place at = layout.apply((head * kKvPageTokens + token) * width + d);
            EXPECT_EQ(bytes, place.keys + 2 * at[static_cast<size_t>(Axis::kMemory)]);
            EXPECT_TRUE(places.insert(bytes).second);
            EXPECT_LT(bytes, step.page_bytes);
          }
      }
    }
  }
}

TEST(StatePlan, StatesKeptEquallyLongShareAGroup) {
  const Graph graph = graph_of({key_values(2, 16), key_values(2, 16, 64), recurrent(10), key_values(2, 16, 64),
                                key_values(2, 16), recurrent(7)});
  const StatePlan plan = plan_states(graph, StateStorage::kDevice);
  ASSERT_EQ(plan.groups.size(), 3u);
  EXPECT_EQ(plan.groups[0].values, (std::vector<ValueId>{0, 4}));
  EXPECT_EQ(plan.groups[1].values, (std::vector<ValueId>{1, 3}));
  EXPECT_EQ(plan.groups[2].values, (std::vector<ValueId>{2, 5}));
  EXPECT_EQ(plan.bytes_per_token(), 4 * 2 * 2 * 16 * 2);
  EXPECT_EQ(plan.place(4).offset, 2 * 2 * 32 * 16 * 2);
  // float64 for the interpreter, without padding.
  EXPECT_EQ(plan_states(graph, StateStorage::kReference).bytes_per_token(), 4 * 2 * 2 * 16 * 8);
}

TEST(StatePool, MemoryFollowsWhatIsUsed) {
  WrittenPool p({key_values(2, 16), key_values(1, 5, 40)}, 600);
  const int64_t page_bytes = p.plan.groups[0].page_bytes;
  const auto resident = [&] {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE)), size = static_cast<size_t>(600 * page_bytes);
    std::vector<unsigned char> flags((size + page - 1) / page);
    EXPECT_EQ(mincore(p.pool.memory().pages(0), size, flags.data()), 0);
    return std::count_if(flags.begin(), flags.end(), [](unsigned char f) { return (f & 1) != 0; }) *
           static_cast<int64_t>(page);
  };
  const std::vector<uint8_t> tokens(50, 7);
  SequenceState kept(p.pool);
  p.append(kept, tokens);
  const int64_t before = p.pool.touched_bytes();
  EXPECT_EQ(before, 2 * (page_bytes + p.plan.groups[1].page_bytes));
  {
    SequenceState large(p.pool);
    for (int i = 0; i < 32; ++i) p.append(large, std::vector<uint8_t>(32 * 16, 9));
    EXPECT_GE(p.pool.touched_bytes(), before + 512 * page_bytes);
    EXPECT_GE(resident(), 514 * page_bytes);
    // Pages that have left the window give back what the others do not.
    p.pool.give_back_unused();
    p.pool.give_back_unused();
    EXPECT_LT(p.pool.touched_bytes(), before + 512 * page_bytes + 40 * p.plan.groups[1].page_bytes);
  }
  EXPECT_GE(resident(), 514 * page_bytes);
  EXPECT_TRUE(p.pool.give_back_unused());
  SequenceState other(p.pool);
  p.append(other, tokens);  // takes some of them again
  EXPECT_FALSE(p.pool.give_back_unused());
  EXPECT_EQ(p.pool.touched_bytes(), 2 * before);
  EXPECT_LE(resident(), 4 * page_bytes + (2 << 20));  // huge pages are split, except around what is used
  for (int64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(p.at(kept, 0, i), 7);
    EXPECT_EQ(p.at(other, 0, i), 7);
  }
  EXPECT_FALSE(p.pool.give_back_unused());
}

TEST(StatePool, SequencesGrowShrinkAndGivePagesBack) {
  WrittenPool p({key_values(2, 16)}, 10);
  {
    SequenceState a(p.pool), b(p.pool);
    p.append(a, std::vector<uint8_t>(1, 1));
    p.append(a, std::vector<uint8_t>(31, 2));
    EXPECT_EQ(p.used(0), 1);
    p.append(b, std::vector<uint8_t>(97, 3));
    p.append(a, {4});
    EXPECT_EQ(p.used(0), 6);
    EXPECT_EQ(p.pool.free_tokens(), 4 * 32);
    const Status full = a.reserve(32 * 7 - 33);
    EXPECT_EQ(full.code(), Code::out_of_memory);
    EXPECT_EQ(full.message(), "key-value cache: 5 more pages of 32 tokens are needed, 4 of 10 are free");
    EXPECT_EQ(p.used(0), 6);
    ASSERT_TRUE(a.reserve(100).ok());
    a.rollback();
    EXPECT_EQ(p.used(0), 6);
    EXPECT_EQ(b.truncate(1), 1);
    EXPECT_EQ(p.used(0), 3);
    EXPECT_EQ(b.truncate(50), 1);
  }
  EXPECT_EQ(p.used(0), 0);
}

TEST(StatePool, ForksCopyOnWrite) {
  WrittenPool p({key_values(1, 16)}, 20);
  SequenceState a(p.pool);
  std::vector<uint8_t> tokens(40);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint8_t>(i);
  p.append(a, tokens);
  SequenceState b(p.pool), c(p.pool);
  a.fork_into(b);
  a.fork_into(c);
  EXPECT_EQ(p.used(0), 2);
  p.append(b, {100});
  EXPECT_EQ(p.used(0), 3);  // the last page of b
  p.append(a, {101});
  EXPECT_EQ(p.used(0), 4);
  p.append(c, {102});  // nobody else has that page now
  EXPECT_EQ(p.used(0), 4);
  EXPECT_EQ(p.at(a, 0, 40), 101);
  EXPECT_EQ(p.at(b, 0, 40), 100);
  EXPECT_EQ(p.at(c, 0, 40), 102);
  for (int64_t i = 0; i < 40; ++i)
    for (SequenceState* s : {&a, &b, &c}) EXPECT_EQ(p.at(*s, 0, i), i);
  // Cut into the shared page, which must not be written.
  b.truncate(10);
  p.append(b, {77});
  EXPECT_EQ(p.at(b, 0, 10), 77);
  EXPECT_EQ(p.at(a, 0, 10), 10);
  a.truncate(0), b.truncate(0), c.truncate(0);
  EXPECT_EQ(p.used(0), 0);
}

TEST(StatePool, PagesThatLeaveAWindowAreFreed) {
  constexpr int64_t kWindow = 64;
  WrittenPool p({key_values(1, 16), key_values(1, 16, kWindow)}, 200);
  SequenceState s(p.pool);
  for (int i = 0; i < 1000; ++i) p.append(s, {static_cast<uint8_t>(i % 251)});
  EXPECT_EQ(p.used(0), 32);
  EXPECT_LE(p.used(1), (kWindow + kWindowSlack) / 32 + 2);
  const auto still_there = [&](int64_t length) {
    for (int64_t i = std::max<int64_t>(0, length - kWindow + 1); i < length; ++i)
      if (p.at(s, 1, i) != i % 251) return false;
    return s.length() == length;
  };
  EXPECT_TRUE(still_there(1000));
  EXPECT_EQ(s.truncate(1000 - kWindowSlack), 1000 - kWindowSlack);
  EXPECT_TRUE(still_there(1000 - kWindowSlack));
  EXPECT_EQ(p.pool.free_tokens(), (200 - 24) * 32);
  EXPECT_EQ(s.truncate(300), 0);  // its window is gone
  EXPECT_EQ(p.used(0) + p.used(1), 0);
}

TEST(StatePool, ARecurrentStateSurvivesAFailedStepAndReturnsToSnapshots) {
  WrittenPool p({recurrent(4)}, 10);
  const auto state = [&](SequenceState& s) { return reinterpret_cast<const float*>(p.page(0, s.pages(0)[0]))[0]; };
  SequenceState s(p.pool);
  p.append(s, {5});
  EXPECT_EQ(state(s), 5);
  p.append(s, {1, 2});
  EXPECT_EQ(state(s), (5 * 3 + 1) * 3 + 2);
  ASSERT_TRUE(s.reserve(1).ok());
  s.rollback();
  EXPECT_EQ(state(s), 50);
  s.snapshot();
  p.append(s, {0});
  p.append(s, {1});
  SequenceState fork(p.pool);
  s.fork_into(fork);
  p.append(fork, {9});
  EXPECT_EQ(state(s), 451);
  EXPECT_EQ(state(fork), next(451, 9));
  EXPECT_EQ(s.truncate(4), 4);  // the step before the last one is kept
  EXPECT_EQ(state(s), 150);
  EXPECT_EQ(fork.truncate(4), 3);  // the snapshot
  EXPECT_EQ(state(fork), 50);
  EXPECT_EQ(s.truncate(2), 0);
  p.append(s, {7});
  EXPECT_EQ(state(s), 7);  // pages come back cleared
  s.truncate(0), fork.truncate(0);
  EXPECT_EQ(p.used(0), 0);
}

// Random appends, cuts and forks against plain vectors.
TEST(StatePool, RandomPlayKeepsEverySequence) {
  constexpr int64_t kWindow = 40;
  WrittenPool p({key_values(1, 16), key_values(1, 16, kWindow), recurrent(1)}, 400);
  std::mt19937 random(5);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  struct Played {
    std::unique_ptr<SequenceState> state;
    std::vector<uint8_t> tokens;
  };
  std::vector<Played> all(6);
  for (Played& one : all) one.state = std::make_unique<SequenceState>(p.pool);
  for (int i = 0; i < 3000; ++i) {
    Played& one = all[static_cast<size_t>(below(6))];
    switch (below(8)) {
      case 0: {
        const int64_t kept = one.state->truncate(below(std::ssize(one.tokens) + 1));
        one.tokens.resize(static_cast<size_t>(kept));
        break;
      }
      case 1: {
        Played& other = all[static_cast<size_t>(below(6))];
        if (&other == &one) break;
        other.state = std::make_unique<SequenceState>(p.pool);
        one.state->fork_into(*other.state);
        other.tokens = one.tokens;
        break;
      }
      case 2: one.state->snapshot(); break;
      default: {
        std::vector<uint8_t> more(static_cast<size_t>(1 + below(below(3) ? 3 : 60)));
        for (uint8_t& token : more) token = static_cast<uint8_t>(below(5));
        if (one.tokens.size() + more.size() > 500) break;
        if (!one.state->reserve(std::ssize(more)).ok()) {
          one.state->truncate(0);
          one.tokens.clear();
          break;
        }
        one.state->rollback();
        p.append(*one.state, more);
        one.tokens.insert(one.tokens.end(), more.begin(), more.end());
      }
    }
    for (const Played& played : all) {
      const int64_t length = played.state->length();
      ASSERT_EQ(length, std::ssize(played.tokens));
      for (int64_t t = 0; t < length; ++t) {
        ASSERT_EQ(p.at(*played.state, 0, t), played.tokens[static_cast<size_t>(t)]);
        if (t <= length - kWindow) continue;
        ASSERT_EQ(p.at(*played.state, 1, t), played.tokens[static_cast<size_t>(t)]);
      }
      if (length == 0) continue;
      float want = 0;
      for (const uint8_t token : played.tokens) want = next(want, token);
      ASSERT_EQ(reinterpret_cast<const float*>(p.page(2, played.state->pages(2)[0]))[0], want);
    }
  }
  for (Played& one : all) one.state.reset();
  for (size_t g = 0; g < 3; ++g) EXPECT_EQ(p.used(g), 0);
}

}  // namespace redline::test
