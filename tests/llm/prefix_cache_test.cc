// Prefixes of sequences: what is restored, what is evicted, and random use against a plain map.
#include "llm/prefix_cache.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "llm/written_pool.h"

namespace redline::test {
namespace {

using PrefixCacheTokens = std::vector<uint8_t>;

std::vector<ContentKey> prefix_cache_ids(const PrefixCacheTokens& tokens) { return {tokens.begin(), tokens.end()}; }

/// PrefixCacheTokens that count from `first`.
PrefixCacheTokens text(size_t length, uint8_t first = 0) {
  PrefixCacheTokens tokens(length);
  for (size_t i = 0; i < length; ++i) tokens[i] = static_cast<uint8_t>(first + i);
  return tokens;
}
PrefixCacheTokens operator+(PrefixCacheTokens a, const PrefixCacheTokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct Cached : WrittenPool {
  PrefixCache cache{pool};
  PrefixKey key;

  Cached(const std::vector<StateAttrs>& states, int64_t pages) : WrittenPool(states, pages) {}

  /// Runs a text from its longest stored prefix, and stores it. Returns what was restored.
  PrefixRestored run(const PrefixCacheTokens& tokens, const PrefixKey& with) {
    SequenceState state(pool);
    const PrefixRestored restored = start(state, tokens, with);
    cache.store(with, prefix_cache_ids(tokens), state, true);
    return restored;
  }
  PrefixRestored run(const PrefixCacheTokens& tokens) { return run(tokens, key); }
  /// Gives `state` the state after `tokens`, the last of which is always computed.
  PrefixRestored start(SequenceState& state, const PrefixCacheTokens& tokens, const PrefixKey& with) {
    const std::vector<ContentKey> all = prefix_cache_ids(tokens);
    const PrefixRestored restored = cache.restore(with, std::span(all).first(all.size() - 1), state);
    EXPECT_EQ(state.length(), restored.length);
    append(state, PrefixCacheTokens(tokens.begin() + restored.length, tokens.end()));
    check(state, tokens);
    return restored;
  }
  int64_t longest(const PrefixCacheTokens& tokens) { return cache.find(key, prefix_cache_ids(tokens)).length; }

  /// The pages of a sequence hold its tokens wherever the next token may read them.
  void check(SequenceState& state, const PrefixCacheTokens& tokens) {
    const int64_t length = state.length();
    ASSERT_EQ(length, std::ssize(tokens));
    for (size_t g = 0; g < pool.num_groups() && length > 0; ++g) {
      const StateGroup& group = pool.group(g);
      if (group.kind == StateKind::kRecurrent) {
        float want = 0;
        for (const uint8_t token : tokens) want = next(want, token);
        ASSERT_EQ(reinterpret_cast<const float*>(page(g, state.pages(g)[0]))[0], want);
        continue;
      }
      const int64_t first = group.window > 0 ? std::max<int64_t>(0, length - group.window + 1) : 0;
      for (int64_t i = first; i < length; ++i)
        ASSERT_EQ(at(state, g, i), tokens[static_cast<size_t>(i)]) << g << " " << i;
    }
  }
};

PrefixKey salted(const std::string& salt) { return PrefixKey({}, salt); }

TEST(PrefixCache, HitOfASecondTurnComputesItsMessageOnly) {
  Cached c({key_values(1, 16)}, 100);
  const PrefixCacheTokens first = text(75), second = first + text(20, 200);
  EXPECT_EQ(c.run(first).length, 0);
  EXPECT_EQ(c.cache.num_nodes(), 3);
  EXPECT_EQ(c.pool.num_stored_only(0), 3);
  const PrefixRestored turn = c.run(second);
  EXPECT_EQ(turn.length, 75);
  EXPECT_EQ(turn.miss, CacheMiss::kNotStored);
  EXPECT_EQ(c.cache.num_nodes(), 3);  // the page that was partly filled has grown
  // Again `second`: all tokens but the last are found.
  const PrefixRestored again = c.run(second);
  EXPECT_EQ(again.length, 94);
  EXPECT_EQ(again.miss, CacheMiss::kNone);
  // Another message after the first turn, in the middle of a page.
  EXPECT_EQ(c.run(first + text(40, 100)).length, 75);
  EXPECT_EQ(c.run(text(50) + text(40, 100)).length, 50);
  EXPECT_EQ(c.used(0), c.pool.num_stored_only(0));
  c.cache.clear();
  EXPECT_EQ(c.used(0), 0);
  EXPECT_EQ(c.cache.num_nodes(), 0);
}

// Keys decide, not tokens: rows of different media are different, and the same media is shared.
TEST(PrefixCache, ContentKeysOfMediaAreKeptApart) {
  Cached c({key_values(1, 16)}, 100);
  const auto contents = [](ContentKey media) {
    std::vector<ContentKey> keys(70, 5);
    std::fill(keys.begin() + 40, keys.begin() + 60, kMediaKeyBit | media);
    return keys;
  };
  SequenceState state(c.pool);
  c.append(state, text(70));
  c.cache.store(c.key, contents(1), state, true);
  EXPECT_EQ(c.cache.find(c.key, contents(1)).length, 70);
  EXPECT_EQ(c.cache.find(c.key, contents(2)).length, 40);
  EXPECT_EQ(c.cache.find(c.key, std::vector<ContentKey>(70, 5)).length, 40);
}

TEST(PrefixCache, SequencesThatRunShareTheirPages) {
  Cached c({key_values(1, 16)}, 100);
  const PrefixCacheTokens prompt = text(100);
  SequenceState a(c.pool), b(c.pool);
  c.start(a, prompt, c.key);
  c.cache.store(c.key, prefix_cache_ids(prompt), a, false);
  EXPECT_EQ(c.used(0), 4);  // the last page, partly filled, is not stored
  EXPECT_EQ(c.pool.num_stored_only(0), 0);
  EXPECT_EQ(c.start(b, prompt, c.key).length, 96);
  EXPECT_EQ(c.used(0), 5);
  // A sequence that has computed the same tokens takes the stored pages.
  SequenceState other(c.pool);
  c.append(other, prompt);
  EXPECT_EQ(c.used(0), 9);
  c.cache.store(c.key, prefix_cache_ids(prompt), other, false);
  EXPECT_EQ(c.used(0), 6);
  c.check(other, prompt);
}

TEST(PrefixCache, AdaptersAndSaltsAreKeptApart) {
  Cached c({key_values(1, 16)}, 100);
  const PrefixCacheTokens tokens = text(80);
  c.run(tokens, salted("a"));
  EXPECT_EQ(c.run(tokens, salted("b")).length, 0);
  EXPECT_EQ(c.run(tokens, salted("b")).length, 79);
  EXPECT_EQ(c.run(tokens).miss, CacheMiss::kNotStored);  // salts do not tell of each other

  auto adapter = std::make_shared<const Adapter>();
  const auto with = [](const std::shared_ptr<const Adapter>& a, float weight) {
    const WeightedAdapter weighted{a, weight};
    return PrefixKey({&weighted, 1}, "");
  };
  PrefixRestored restored = c.run(tokens, with(adapter, 1));
  EXPECT_EQ(restored.length, 0);
  EXPECT_EQ(restored.miss, CacheMiss::kOtherAdapter);
  EXPECT_EQ(c.run(tokens, with(adapter, 0.5f)).length, 0);
  EXPECT_EQ(c.run(tokens, with(adapter, 1)).length, 79);
  // The adapter is loaded again, perhaps at the same address: another one.
  const PrefixKey old = with(adapter, 1);
  adapter.reset();
  adapter = std::make_shared<const Adapter>();
  EXPECT_TRUE(old.is_expired());
  EXPECT_EQ(c.run(tokens, with(adapter, 1)).length, 0);
  EXPECT_EQ(c.run(tokens, with(adapter, 1)).length, 79);
}

TEST(PrefixCache, TheLeastRecentlyUsedLeafIsEvictedFirst) {
  Cached c({key_values(1, 16)}, 8);
  const PrefixCacheTokens shared = text(64);
  const PrefixCacheTokens a = shared + text(32, 100), b = shared + text(32, 150), d = text(64, 200);
  c.run(a), c.run(b), c.run(d);
  EXPECT_EQ(c.pool.num_free(0), 2);
  c.run(a);  // b is now the oldest
  SequenceState state(c.pool);
  c.append(state, text(96, 50));
  EXPECT_EQ(c.longest(b), 64);
  EXPECT_EQ(c.longest(a), 96);
  EXPECT_EQ(c.longest(d), 64);
  c.append(state, text(32, 50));
  EXPECT_EQ(c.longest(d), 32);  // from the end of a text
  EXPECT_EQ(c.longest(a), 96);
  {
    SequenceState probe(c.pool);
    EXPECT_EQ(c.cache.restore(c.key, prefix_cache_ids(d), probe).miss, CacheMiss::kEvicted);
  }
  // A path in use stays, whatever is asked for.
  SequenceState locked(c.pool);
  c.start(locked, a + text(1), c.key);
  EXPECT_EQ(c.pool.num_available(0), 0);
  EXPECT_EQ(state.reserve(1).code(), Code::out_of_memory);
  EXPECT_EQ(c.longest(a), 96);
}

TEST(PrefixCache, UnusedPagesAreLimited) {
  WrittenPool p({key_values(1, 16)}, 100);
  PrefixCache cache(p.pool, 3);
  const PrefixKey key;
  SequenceState running(p.pool);
  p.append(running, text(100));
  cache.store(key, prefix_cache_ids(text(100)), running, false);
  for (const uint8_t first : {50, 100, 150}) {
    SequenceState state(p.pool);
    p.append(state, text(64, first));
    cache.store(key, prefix_cache_ids(text(64, first)), state, true);
    state.truncate(0);
    cache.trim();
  }
  EXPECT_EQ(p.pool.num_stored_only(0), 3);
  EXPECT_EQ(cache.find(key, prefix_cache_ids(text(64, 150))).length, 64);
  EXPECT_EQ(cache.find(key, prefix_cache_ids(text(64, 100))).length, 32);
  EXPECT_EQ(cache.find(key, prefix_cache_ids(text(64, 50))).length, 0);
  EXPECT_EQ(cache.find(key, prefix_cache_ids(text(100))).length, 96);
}

TEST(PrefixCache, AWindowIsRestoredWhereItsPagesAre) {
  constexpr int64_t kWindow = 64;
  Cached c({key_values(1, 16), key_values(1, 16, kWindow)}, 60);
  const PrefixCacheTokens tokens = text(1000);
  {
    // Stored at the end only: the window there, and kWindowSlack more.
    EXPECT_EQ(c.run(tokens).length, 0);
    const PrefixCacheTokens first = PrefixCacheTokens(tokens.begin(), tokens.begin() + 990);
    EXPECT_EQ(c.longest(tokens), 1000);
    EXPECT_EQ(c.longest(first), 990);
    EXPECT_EQ(c.longest(PrefixCacheTokens(tokens.begin(), tokens.begin() + 760)), 760);
    const PrefixCacheTokens gone = PrefixCacheTokens(tokens.begin(), tokens.begin() + 500) + text(20, 3);
    const PrefixRestored restored = c.run(gone);
    EXPECT_EQ(restored.length, 0);
    EXPECT_EQ(restored.miss, CacheMiss::kWindow);
    EXPECT_EQ(c.run(gone).length, 519);  // computed again, and so stored again
  }
  // Pages of windows are given up one by one, and the rest of the path stays.
  const int64_t nodes = c.cache.num_nodes();
  std::vector<int32_t> taken;
  while (c.pool.num_available(1) > 0) taken.push_back(*c.pool.take(1));
  EXPECT_EQ(c.cache.num_nodes(), nodes);
  EXPECT_EQ(c.longest(tokens), 0);
  for (const int32_t page : taken) c.pool.drop(1, page);
  c.cache.clear();
  EXPECT_EQ(c.used(0) + c.used(1), 0);
}

TEST(PrefixCache, ARecurrentStateIsRestoredAtSnapshots) {
  Cached c({key_values(1, 16), recurrent(4)}, 60);
  const PrefixCacheTokens first = text(75);
  c.run(first);
  EXPECT_EQ(c.run(first).miss, CacheMiss::kSnapshot);  // its last token has to be computed, and the state is after it
  EXPECT_EQ(c.run(first + text(30, 7)).length, 75);
  EXPECT_EQ(c.run(first + text(30, 99)).length, 75);  // a branch: the page that ends there was kept
  SequenceState state(c.pool);
  c.start(state, text(64, 40), c.key);
  state.snapshot();
  c.append(state, text(9, 3));
  state.snapshot();
  c.append(state, text(9, 5));
  c.cache.store(c.key, prefix_cache_ids(text(64, 40) + text(9, 3) + text(9, 5)), state, true);
  EXPECT_EQ(c.longest(text(64, 40) + text(5, 3)), 64);
  EXPECT_EQ(c.longest(text(64, 40) + text(9, 3)), 73);
  EXPECT_EQ(c.longest(text(64, 40) + text(9, 3) + text(2, 5)), 73);
  EXPECT_EQ(c.longest(text(64, 40) + text(9, 3) + text(9, 5) + text(9, 9)), 82);
}

TEST(PrefixCache, AVeryLongTextIsRemovedWithoutRecursion) {
  Cached c({key_values(1, 16)}, 1 << 15);
  SequenceState state(c.pool);
  const int64_t length = (int64_t{1} << 15) * kKvPageTokens;
  ASSERT_TRUE(state.reserve(length).ok());
  state.commit(length);
  c.cache.store(c.key, std::vector<ContentKey>(static_cast<size_t>(length), 7), state, true);
  state.truncate(0);
  EXPECT_EQ(c.pool.num_stored_only(0), 1 << 15);
  c.cache.clear();
  EXPECT_EQ(c.pool.num_free(0), 1 << 15);
}

/// Random requests against the plain set of all texts that were stored.
void play_prefix_cache(const std::vector<StateAttrs>& states, int64_t pages, bool evicts, uint32_t seed) {
  Cached c(states, pages);
  const bool only_keys = states.size() == 1;
  std::mt19937 random(seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  struct Running {
    std::unique_ptr<SequenceState> state;
    PrefixCacheTokens tokens;
    size_t key = 0;
  };
  const PrefixKey keys[] = {salted(""), salted("x")};
  std::vector<Running> running;
  std::vector<PrefixCacheTokens> stored[2];
  const auto naive = [&](size_t key, const PrefixCacheTokens& tokens) {
    int64_t most = 0;
    for (const PrefixCacheTokens& one : stored[key])
      most = std::max<int64_t>(most,
                               std::mismatch(one.begin(), one.end(), tokens.begin(), tokens.end()).first - one.begin());
    return most;
  };
  const auto add_noise = [&](PrefixCacheTokens tokens) {
    for (int64_t n = 1 + below(below(3) ? 8 : 120); n > 0; --n) tokens.push_back(static_cast<uint8_t>(below(3)));
    return tokens;
  };
  const auto grow = [&](Running& one, const PrefixCacheTokens& to) {
    const auto more = std::ssize(to) - one.state->length();
    if (!one.state->reserve(more).ok()) return false;
    one.state->rollback();
    c.append(*one.state, PrefixCacheTokens(to.end() - more, to.end()));
    one.tokens = to;
    return true;
  };
  const auto finish = [&](size_t i) {
    Running& one = running[i];
    c.cache.store(keys[one.key], prefix_cache_ids(one.tokens), *one.state, true);
    stored[one.key].push_back(one.tokens);
    if (!evicts) {
      const PrefixCacheTokens next_turn = add_noise(one.tokens);
      SequenceState probe(c.pool);
      ASSERT_GE(c.cache.restore(keys[one.key], prefix_cache_ids(next_turn), probe).length, std::ssize(one.tokens));
    }
    running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
  };
  for (int step = 0; step < 1500; ++step) {
    const int64_t op = below(10);
    if (op < 4 && running.size() < 6) {
      Running one;
      one.key = static_cast<size_t>(below(4) == 0);
      const auto& texts = stored[one.key];
      if (!texts.empty() && below(4) > 0) {
        one.tokens = texts[static_cast<size_t>(below(std::ssize(texts)))];
        one.tokens.resize(static_cast<size_t>(below(std::ssize(one.tokens)) + 1));
      }
      const PrefixCacheTokens prompt = add_noise(one.tokens);
      if (prompt.size() > 400) continue;
      one.state = std::make_unique<SequenceState>(c.pool);
      const auto all = prefix_cache_ids(prompt);
      const auto asked = std::span(all).first(all.size() - 1);
      const PrefixMatch found = c.cache.find(keys[one.key], asked);
      const PrefixRestored restored = c.cache.restore(keys[one.key], asked, *one.state);
      ASSERT_EQ(restored.length, found.length);
      const int64_t want = std::min(naive(one.key, prompt), std::ssize(prompt) - 1);
      ASSERT_LE(restored.length, want);
      ASSERT_TRUE(restored.length == want || !only_keys || evicts);
      one.tokens = PrefixCacheTokens(prompt.begin(), prompt.begin() + restored.length);
      c.check(*one.state, one.tokens);
      if (grow(one, prompt)) running.push_back(std::move(one));
    } else if (!running.empty()) {
      const auto i = static_cast<size_t>(below(std::ssize(running)));
      Running& one = running[i];
      if (op < 7) {
        const PrefixCacheTokens to = add_noise(one.tokens);
        if (to.size() > 500 || !grow(one, to)) {
          finish(i);
        } else {
          c.cache.store(keys[one.key], prefix_cache_ids(one.tokens), *one.state, false);
          const auto whole = one.tokens.size() / 32 * 32;
          if (whole > 0)
            stored[one.key].emplace_back(one.tokens.begin(), one.tokens.begin() + static_cast<int64_t>(whole));
        }
      } else if (op == 7) {
        finish(i);
      } else if (op == 8) {
        const int64_t kept = one.state->truncate(below(std::ssize(one.tokens) + 1));
        one.tokens.resize(static_cast<size_t>(kept));
        if (kept == 0) running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
      } else if (running.size() < 6) {
        Running fork{std::make_unique<SequenceState>(c.pool), one.tokens, one.key};
        one.state->fork_into(*fork.state);
        running.push_back(std::move(fork));
      }
    }
    if (::testing::Test::HasFatalFailure()) return;
    for (Running& one : running) c.check(*one.state, one.tokens);
    // Pages are free, or held by sequences, or by the cache alone.
    for (size_t g = 0; g < c.pool.num_groups(); ++g) {
      if (c.pool.group(g).kind == StateKind::kRecurrent) continue;  // snapshots are not visible here
      std::set<int32_t> held;
      for (const Running& one : running) {
        for (int64_t p = 0; p * 32 < one.state->length(); ++p)
          if (const int32_t page = one.state->page_at(g, p); page >= 0) held.insert(page);
      }
      ASSERT_EQ(c.pool.capacity(g), c.pool.num_available(g) + std::ssize(held));
    }
  }
  // All that the pool counts as available can be taken.
  running.clear();
  for (size_t g = 0; g < c.pool.num_groups(); ++g) {
    ASSERT_EQ(c.pool.num_available(g), c.pool.capacity(g));
    std::vector<int32_t> taken;
    while (const auto page = c.pool.take(g)) taken.push_back(*page);
    EXPECT_EQ(std::ssize(taken), c.pool.capacity(g));
    for (const int32_t page : taken) c.pool.drop(g, page);
  }
  c.cache.clear();
  EXPECT_EQ(c.cache.num_nodes(), 0);
  for (size_t g = 0; g < c.pool.num_groups(); ++g) EXPECT_EQ(c.used(g), 0);
}

TEST(PrefixCache, RandomRequestsAgainstASetOfTexts) {
  for (const uint32_t seed : {1, 2, 3}) {
    play_prefix_cache({key_values(1, 16)}, 60000, false, seed);
    play_prefix_cache({key_values(1, 16), key_values(1, 16, 40), recurrent(1)}, 60000, false, seed);
    for (const int64_t pages : {40, 90}) {
      play_prefix_cache({key_values(1, 16)}, pages, true, seed);
      play_prefix_cache({key_values(1, 16), key_values(1, 16, 40)}, pages, true, seed);
      play_prefix_cache({key_values(1, 16), recurrent(1)}, pages, true, seed);
      play_prefix_cache({key_values(1, 16, 40)}, pages, true, seed);
      play_prefix_cache({recurrent(1), key_values(1, 16, 40)}, pages, true, seed);
    }
  }
}

}  // namespace
}  // namespace redline::test
