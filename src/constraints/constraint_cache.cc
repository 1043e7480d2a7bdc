#include "constraints/constraint_cache.h"

#include <algorithm>
#include <functional>
#include <tuple>

namespace redline {
namespace {

uint32_t hash_words(std::span<const uint32_t> words) {
  uint64_t h = 0x9E3779B97F4A7C15ULL ^ words.size();
  for (const uint32_t w : words) {
    h = (h ^ w) * 0xFF51AFD7ED558CCDULL;
    h ^= h >> 32;
  }
  return static_cast<uint32_t>(h ^ (h >> 29));
}

}  // namespace

std::pair<uint32_t, bool> WordInterner::insert(std::span<const uint32_t> words) {
  const uint32_t hash = hash_words(words);
  size_t slot = hash & (slots_.size() - 1);
  for (; slots_[slot] != 0; slot = (slot + 1) & (slots_.size() - 1)) {
    const uint32_t id = slots_[slot] - 1;
    if (hashes_[id] == hash && std::ranges::equal(this->words(id), words)) return {id, false};
  }
  const auto id = static_cast<uint32_t>(size());
  slots_[slot] = id + 1;
  hashes_.push_back(hash);
  words_.insert(words_.end(), words.begin(), words.end());
  begins_.push_back(static_cast<uint32_t>(words_.size()));
  if (2 * size() > slots_.size()) grow();
  return {id, true};
}

void WordInterner::grow() {
  slots_.assign(slots_.size() * 2, 0);
  for (uint32_t id = 0; id < size(); ++id) {
    size_t slot = hashes_[id] & (slots_.size() - 1);
    while (slots_[slot] != 0) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = id + 1;
  }
}

ConstraintCache::ConstraintCache(const Automaton& automaton, const TokenTrie& trie, const ConstraintLimits& limits)
    : automaton_(automaton), trie_(trie), limits_(limits), classes_(automaton.byte_classes()),
      num_classes_(automaton.num_classes()) {
  stacks_.insert(std::vector<uint32_t>{});             // kRootStack
  stacks_.insert(std::vector<uint32_t>{kNone, 1, 0});  // kOpenStack
  pops_ = {kNone, kNone};
  std::vector<Entry> none;
  intern_config(0, none);  // kDead
  call_of_rule_.assign(automaton.rules().size(), kNone);
  frames_of_call(automaton.root()).push_back({kNone, 0, kRootStack});
  start_ = close();
  if (automaton.matches_empty()) start_ = with_flag(start_, kAccepts);
}

uint32_t ConstraintCache::with_flag(uint32_t config, Flags flag) {
  std::vector<Entry> entries;
  for (size_t i = 0; i < num_entries(config); ++i) entries.push_back(entry(config, i));
  return intern_config(static_cast<uint8_t>((flags_[config] & (kAccepts | kLeaves)) | flag), entries);
}

void ConstraintCache::fail(std::string_view what) {
  if (status_.ok()) status_ = invalid_argument("the constraint is too ambiguous: {}", what);
}

void ConstraintCache::fail_by_work() {
  if (status_.ok())
    fail(fmt::format("one token takes more than {} steps (ConstraintLimits::max_step_work)", limits_.max_step_work));
}

std::vector<ConstraintCache::Frame>& ConstraintCache::frames_of_call(uint32_t rule) {
  uint32_t& call = call_of_rule_[rule];
  if (call == kNone) {
    call = static_cast<uint32_t>(calls_.size());
    calls_.push_back({rule, {}});
    next_calls_.emplace_back(automaton_.rules()[rule].rank, rule);
    std::push_heap(next_calls_.begin(), next_calls_.end(), std::greater<>());
  }
  return calls_[call].second;
}

uint32_t ConstraintCache::intern_frames(std::vector<Frame>& frames) {
  std::sort(frames.begin(), frames.end());
  frames.erase(std::unique(frames.begin(), frames.end()), frames.end());
  words_.clear();
  for (const Frame& f : frames) words_.insert(words_.end(), {f.state, f.count, f.stack});
  const auto [id, is_new] = stacks_.insert(words_);
  if (is_new) pops_.push_back(kNone);
  return id;
}

bool ConstraintCache::is_before(const Entry& a, const Entry& b) {
  return std::tie(a.state, a.count, a.stack) < std::tie(b.state, b.count, b.stack);
}

uint32_t ConstraintCache::intern_config(uint8_t flags, std::vector<Entry>& entries) {
  std::sort(entries.begin(), entries.end(), is_before);
  words_.assign(1, flags);
  for (const Entry& e : entries) {
    words_.insert(words_.end(), {e.state, e.count, e.stack});
    if (!automaton_.byte_edges(e.state).empty()) flags |= kGoesOn;
    if (!automaton_.token_edges(e.state).empty()) flags |= kGoesOn | kHasTokens;
  }
  const auto [id, is_new] = configs_.insert(words_);
  if (is_new) {
    flags_.push_back(flags);
    rows_of_.push_back(kNone);
    after_plain_.push_back(kNone);
  }
  return id;
}

// Adds an entry to work_ unless it is there. seen_slots_ is a hash set of the entries of work_.
void ConstraintCache::add_entry(Entry e) {
  const Automaton::State& state = automaton_.state(e.state);
  const Automaton::Rule& rule = automaton_.rules()[state.rule];
  if (rule.is_counted) {
    if (rule.greatest == Automaton::kUnbounded) {
      e.count = std::min(e.count, rule.least);
    } else if (state.min_ticks > rule.greatest || e.count > rule.greatest - state.min_ticks) {
      return;
    }
    if (state.greatest_ticks != Automaton::kUnbounded &&
        uint64_t{e.count} + state.greatest_ticks < uint64_t{rule.least})
      return;
  }
  if (!spend(1)) return;
  if (work_.size() >= limits_.max_parse_states)
    return fail(fmt::format("it has more than {} parse states at one position (ConstraintLimits::max_parse_states)",
                            limits_.max_parse_states));
  if (seen_slots_.size() < 2 * (work_.size() + 1)) {
    seen_slots_.assign(std::max<size_t>(64, seen_slots_.size() * 2), 0);
    seen_size_ = 0;
    for (uint32_t i = 0; i < work_.size(); ++i) {
      const uint32_t w[3] = {work_[i].state, work_[i].count, work_[i].stack};
      size_t slot = hash_words(w) & (seen_slots_.size() - 1);
      while (seen_slots_[slot] != 0) slot = (slot + 1) & (seen_slots_.size() - 1);
      seen_slots_[slot] = i + 1;
    }
  }
  const uint32_t w[3] = {e.state, e.count, e.stack};
  size_t slot = hash_words(w) & (seen_slots_.size() - 1);
  for (; seen_slots_[slot] != 0; slot = (slot + 1) & (seen_slots_.size() - 1))
    if (work_[seen_slots_[slot] - 1] == e) return;
  work_.push_back(e);
  seen_slots_[slot] = static_cast<uint32_t>(work_.size());
}

uint32_t ConstraintCache::close() {
  uint8_t flags = 0;
  // `pops`: true follows the ends of rules. It is false for a rule that has just been called, which must match at least
  // one byte.
  size_t at = 0;
  const auto follow = [&](bool pops) {
    for (; at < work_.size() && status_.ok(); ++at) {
      const Entry e = work_[at];
      const Automaton::State& state = automaton_.state(e.state);
      const Automaton::Rule& rule = automaton_.rules()[state.rule];
      if (pops && state.accepts && (!rule.is_counted || e.count >= rule.least)) {
        for (size_t i = 0, n = num_frames(e.stack); i < n && status_.ok(); ++i) {
          const Frame f = frame(e.stack, i);
          if (f.state != kNone) add_entry({f.state, f.count, f.stack});
          else flags |= f.count == 0 ? kAccepts : kLeaves;
        }
      }
      for (const Automaton::EmptyEdge& edge : automaton_.empty_edges(e.state)) {
        if (edge.ticks && !pops) continue;
        const uint32_t count = edge.ticks && e.count != UINT32_MAX ? e.count + 1 : e.count;
        add_entry({edge.to, count, e.stack});
      }
      for (const Automaton::CallEdge& edge : automaton_.call_edges(e.state)) {
        std::vector<Frame>& frames = frames_of_call(edge.rule);
        if (!edge.is_tail) {
          if (!spend(1)) return;
          frames.push_back({edge.to, e.count, e.stack});
        } else {
          if (!spend(num_frames(e.stack))) return;
          for (size_t i = 0, n = num_frames(e.stack); i < n; ++i) frames.push_back(frame(e.stack, i));
        }
      }
      if (automaton_.is_essential(e.state)) essential_.push_back(e);
    }
  };
  essential_.clear();
  follow(true);
  // Rules are entered in the order of their ranks, so that all calls of a rule at this position are known when it is
  // entered.
  while (!next_calls_.empty() && status_.ok()) {
    std::pop_heap(next_calls_.begin(), next_calls_.end(), std::greater<>());
    const uint32_t rule = next_calls_.back().second;
    next_calls_.pop_back();
    std::vector<Frame> frames = std::move(calls_[std::exchange(call_of_rule_[rule], kNone)].second);
    add_entry({automaton_.rules()[rule].start, 0, intern_frames(frames)});
    follow(false);
  }
  for (const auto& [rank, rule] : next_calls_) call_of_rule_[rule] = kNone;  // only left over if a limit was exceeded
  next_calls_.clear();
  calls_.clear();
  const uint32_t config = intern_config(flags, essential_);
  work_.clear();
  std::fill(seen_slots_.begin(), seen_slots_.end(), 0);
  if (seen_slots_.size() > 4096) seen_slots_.clear();
  if (bytes() > 2 * limits_.cache_bytes)
    fail(fmt::format("its parse states take more than {} bytes (ConstraintLimits::cache_bytes)",
                     2 * limits_.cache_bytes));
  return config;
}

uint32_t ConstraintCache::compute_step(uint32_t config, uint8_t byte) {
  if (!status_.ok()) return kDead;
  if (rows_of_[config] == kNone) {
    rows_of_[config] = static_cast<uint32_t>(rows_.size());
    rows_.resize(rows_.size() + num_classes_, kNone);
  }
  for (size_t i = 0, n = num_entries(config); i < n; ++i) {
    const Entry e = entry(config, i);
    if (!spend(1 + automaton_.byte_edges(e.state).size() / 4)) break;
    for (const Automaton::ByteEdge& edge : automaton_.byte_edges(e.state))
      if (edge.lo <= byte && byte <= edge.hi) add_entry({edge.to, e.count, e.stack});
  }
  const uint32_t next = work_.empty() ? kDead : close();
  if (!status_.ok()) return kDead;
  rows_[rows_of_[config] + classes_[byte]] = next;
  return next;
}

uint32_t ConstraintCache::step_token(uint32_t config, TokenId token) {
  const std::string_view text = trie_.text(token);
  uint32_t by_bytes = text.empty() ? kDead : config;
  for (const char c : text) by_bytes = step(by_bytes, static_cast<uint8_t>(c));
  if (!(flags_[config] & kHasTokens)) return by_bytes;
  for (size_t i = 0, n = num_entries(config); i < n; ++i) {
    const Entry e = entry(config, i);
    for (const Automaton::TokenEdge& edge : automaton_.token_edges(e.state))
      if ((edge.token == token) != edge.negated) add_entry({edge.to, e.count, e.stack});
  }
  if (work_.empty()) return by_bytes;
  const uint32_t as_token = close();
  if (by_bytes == kDead) return as_token;
  std::vector<Entry> both;
  for (const uint32_t c : {by_bytes, as_token})
    for (size_t i = 0; i < num_entries(c); ++i) both.push_back(entry(c, i));
  std::sort(both.begin(), both.end(), is_before);
  both.erase(std::unique(both.begin(), both.end()), both.end());
  const auto flags = static_cast<uint8_t>((flags_[by_bytes] | flags_[as_token]) & (kAccepts | kLeaves));
  return intern_config(flags, both);
}

uint32_t ConstraintCache::behind(uint32_t stack) {
  if (pops_[stack] != kNone) return pops_[stack];
  uint8_t flags = 0;
  for (size_t i = 0, n = num_frames(stack); i < n; ++i) {
    const Frame f = frame(stack, i);
    if (f.state != kNone) add_entry({f.state, f.count, f.stack});
    else flags |= kAccepts;
  }
  uint32_t config = kDead;
  if (!work_.empty()) config = close();
  if (flags != 0) config = with_flag(config, kAccepts);
  if (!status_.ok()) return kDead;
  return pops_[stack] = config;
}

uint32_t ConstraintCache::canonical_count(uint32_t state, uint32_t count, size_t& exact_bytes) const {
  const Automaton::Rule& rule = automaton_.rules()[automaton_.state(state).rule];
  if (!rule.is_counted) return 0;
  const uint64_t near = std::min(trie_.max_bytes(), TokenTrie::kShortBytes) + uint64_t{rule.max_distance} + 1;
  const uint64_t reach = uint64_t{trie_.max_bytes()} + rule.max_distance + 1;
  uint64_t distance = UINT64_MAX;  // distance to the next bound of the count
  if (count < rule.least) distance = rule.least - count;
  else if (rule.greatest != Automaton::kUnbounded) distance = rule.greatest - std::min(count, rule.greatest);
  if (distance <= near) return count;
  if (distance <= reach) exact_bytes = std::min<size_t>(exact_bytes, distance - rule.max_distance - 1);
  return count < rule.least ? 0 : rule.least;
}

uint32_t ConstraintCache::after_plain(uint32_t config) {
  if (after_plain_[config] != kNone) return after_plain_[config] == kNone - 1 ? kNone : after_plain_[config];
  uint32_t after = kNone;
  bool is_first = true, is_same = true;
  std::array<bool, 256> done = {};  // classes of bytes that have been tried; one byte of each is enough
  const auto see = [&](uint32_t next) {
    if (is_first) after = next;
    is_first = false;
    is_same = is_same && next == after;
  };
  for (uint32_t b = 0x20; b < 0x7F && is_same; ++b)
    if (b != '"' && b != '\\' && !std::exchange(done[classes_[b]], true)) see(step(config, static_cast<uint8_t>(b)));
  std::unordered_map<uint64_t, bool> checked;  // (parse state, first byte, last byte, how many follow)
  const auto see_tail = [&](auto& self, uint32_t from, uint32_t lo, uint32_t hi, int more) -> void {
    if (!is_same) return;
    if (from == kDead) return see(kDead);
    const uint64_t key = (uint64_t{from} << 24) | (lo << 16) | (hi << 8) | static_cast<uint32_t>(more);
    if (!checked.emplace(key, true).second) return;
    std::array<bool, 256> seen = {};
    for (uint32_t b = lo; b <= hi && is_same; ++b) {
      if (std::exchange(seen[classes_[b]], true)) continue;
      if (!spend(1)) return see(kDead);
      const uint32_t next = step(from, static_cast<uint8_t>(b));
      if (more == 0) see(next);
      else self(self, next, 0x80, 0xBF, more - 1);
    }
  };
  for (uint32_t b = 0xC2; b <= 0xDF; ++b) see_tail(see_tail, step(config, static_cast<uint8_t>(b)), 0x80, 0xBF, 0);
  for (uint32_t b = 0xE0; b <= 0xEF; ++b)
    see_tail(see_tail, step(config, static_cast<uint8_t>(b)), b == 0xE0 ? 0xA0 : 0x80, b == 0xED ? 0x9F : 0xBF, 1);
  for (uint32_t b = 0xF0; b <= 0xF4; ++b)
    see_tail(see_tail, step(config, static_cast<uint8_t>(b)), b == 0xF0 ? 0x90 : 0x80, b == 0xF4 ? 0x8F : 0xBF, 2);
  if (status_.ok()) after_plain_[config] = is_same ? after : kNone - 1;
  return is_same ? after : kNone;
}

bool ConstraintCache::is_next_round(uint32_t config, uint32_t next, const Automaton::Rule& rule) const {
  if (num_entries(config) != num_entries(next)) return false;
  for (size_t i = 0; i < num_entries(config); ++i) {
    const Entry a = entry(config, i), b = entry(next, i);
    const Automaton::State& state = automaton_.state(a.state);
    if (a.state != b.state || a.stack != b.stack || a.stack != kOpenStack || a.count + 1 != b.count) return false;
    if (&automaton_.rules()[state.rule] != &rule || state.min_ticks > 1) return false;
    if (state.greatest_ticks != Automaton::kUnbounded && a.count < rule.least) return false;
  }
  return true;
}

std::optional<size_t> ConstraintCache::free_plain_chars(uint32_t config, Entry entry) {
  // A state with few possible bytes, for example within a literal, is not worth the search.
  constexpr int kMinBytes = 90;
  int bytes = 0;
  for (const Automaton::ByteEdge& edge : automaton_.byte_edges(entry.state)) bytes += edge.hi - edge.lo + 1;
  if (bytes < kMinBytes) return std::nullopt;
  const size_t max_chars = trie_.max_plain_chars();
  const Automaton::State& state = automaton_.state(entry.state);
  const Automaton::Rule& rule = automaton_.rules()[state.rule];
  for (size_t chars = 0;; ++chars) {
    const uint32_t next = after_plain(config);
    if (next == kDead) return chars;
    if (next == kNone || (flags_[next] & kLeaves)) {
      // If any number of characters may follow, it does not matter that the rule may also end.
      if (next == config) return max_chars + 1;
      return std::nullopt;
    }
    if (next == config || chars == max_chars) return max_chars + 1;
    // A loop that counts each character continues up to its bound.
    if (chars == 1 && rule.is_counted && rule.greatest != Automaton::kUnbounded && is_next_round(config, next, rule))
      return std::min<size_t>(rule.greatest - entry.count, max_chars + 1);
    config = next;
  }
}

std::unique_ptr<ConstraintCache::StateMask> ConstraintCache::make_state_mask(uint32_t state, uint32_t count) {
  auto mask = std::make_unique<StateMask>();
  std::vector<Entry> entries = {{state, count, kOpenStack}};
  const uint32_t config = intern_config(0, entries);
  TokenBits bits(trie_.num_words());

  const std::optional<size_t> free_chars = free_plain_chars(config, entries[0]);
  if (free_chars) bits = trie_.plain_up_to(*free_chars);

  // A trie node whose parse state is known costs far less than a new parse state, so 16 nodes count as one unit of
  // work.
  constexpr uint64_t kNodesPerWork = 16, kWordsPerWork = 64;
  uint64_t nodes = 0;
  if (!spend(bits.size() / kWordsPerWork + 1)) return mask;
  std::vector<std::pair<std::string_view, TokenId>> open;
  const auto walk = [&](const ByteTrie& trie) {
    std::vector<uint32_t> path(trie.max_depth() + 1);
    std::vector<uint8_t> leaves(trie.max_depth() + 1);  // for each depth: true if the rule can end at it or before
    std::vector<uint8_t> can_end(trie.max_depth() + 1);
    path[0] = config;
    for (size_t i = 0; i < trie.size() && status_.ok();) {
      if (++nodes % kNodesPerWork == 0) spend(1);
      const ByteTrie::Node& node = trie.node(i);
      const size_t d = node.depth;
      const uint32_t next = step(path[d - 1], node.byte);
      if (next != kDead) {
        path[d] = next;
        can_end[d] = (flags_[next] & kLeaves) != 0;
        leaves[d] = leaves[d - 1] | can_end[d];
        for (const TokenId id : trie.tokens(i)) set_bit(bits, id);
        ++i;
        continue;
      }
      if (leaves[d - 1]) {
        if (!spend(trie.subtree_tokens(i).size() / 4)) break;
        for (const TokenId id : trie.subtree_tokens(i)) {
          const std::string_view token = trie_.text(id);
          for (size_t e = d - 1; e > 0; --e)
            if (can_end[e]) open.emplace_back(token.substr(e), id);
        }
      }
      i = node.end;
    }
  };
  if (!free_chars) walk(trie_.plain());
  walk(trie_.other());
  std::sort(open.begin(), open.end());
  open.erase(std::unique(open.begin(), open.end()), open.end());
  mask->open = ByteTrie(std::move(open));

  size_t set = 0;
  for (const uint32_t word : bits) set += static_cast<size_t>(__builtin_popcount(word));
  if (set <= trie_.num_words() / 8) {
    mask->few.reserve(set);
    for (size_t w = 0; w < bits.size(); ++w)
      for (uint32_t rest = bits[w]; rest != 0; rest &= rest - 1)
        mask->few.push_back(static_cast<TokenId>(32 * w + static_cast<size_t>(__builtin_ctz(rest))));
  } else {
    mask->bits = std::move(bits);
  }
  mask_bytes_ += sizeof(StateMask) + 4 * (mask->few.size() + mask->bits.size()) + 16 * mask->open.size();
  return mask;
}

void ConstraintCache::add_mask(uint32_t config, std::span<uint32_t> bits) {
  if (config == kDead) return;
  KeptMask& kept = masks_[config];
  if (kept.visits == 0) mask_bytes_ += 64;
  if (!kept.bits.empty()) {
    for (size_t w = 0; w < bits.size(); ++w) bits[w] |= kept.bits[w];
    return;
  }
  if (flags_[config] & kHasTokens)
    for (size_t i = 0, n = num_entries(config); i < n; ++i)
      for (const Automaton::TokenEdge& edge : automaton_.token_edges(entry(config, i).state)) {
        if (!edge.negated) {
          if (edge.token < trie_.vocab_size()) set_bit(bits, edge.token);
          continue;
        }
        if (!spend(static_cast<uint64_t>(trie_.vocab_size()) / 64)) return;
        for (TokenId id = 0; id < trie_.vocab_size(); ++id)
          if (id != edge.token) set_bit(bits, id);
      }
  size_t exact_bytes = SIZE_MAX;
  for (size_t i = 0, n = num_entries(config); i < n && status_.ok(); ++i) {
    const Entry e = entry(config, i);
    if (automaton_.byte_edges(e.state).empty()) continue;
    const uint64_t key = (uint64_t{e.state} << 32) | canonical_count(e.state, e.count, exact_bytes);
    std::unique_ptr<StateMask>& slot = state_masks_[key];
    if (!slot) slot = make_state_mask(e.state, static_cast<uint32_t>(key));
    if (!status_.ok()) {
      state_masks_.erase(key);
      return;
    }
    StateMask& mask = *slot;
    if (!spend(1 + mask.bits.size() / 64 + mask.few.size() / 64)) return;
    for (size_t w = 0; w < mask.bits.size(); ++w) bits[w] |= mask.bits[w];
    for (const TokenId id : mask.few) set_bit(bits, id);
    if (mask.open.size() == 0) continue;
    const uint32_t start = behind(e.stack);
    const auto [found, is_new] = mask.behind.try_emplace(start);
    std::vector<TokenId>& allowed = found->second;
    if (is_new) {
      const ByteTrie& trie = mask.open;
      std::vector<uint32_t> path(trie.max_depth() + 1);
      path[0] = start;
      for (size_t at = 0; at < trie.size() && status_.ok();) {
        if (at % 16 == 0) spend(1);
        const ByteTrie::Node& node = trie.node(at);
        path[node.depth] = step(path[node.depth - 1U], node.byte);
        if (path[node.depth] == kDead) {
          at = node.end;
          continue;
        }
        allowed.insert(allowed.end(), trie.tokens(at).begin(), trie.tokens(at).end());
        ++at;
      }
      mask_bytes_ += 64 + 4 * allowed.size();
      if (!status_.ok()) {
        mask.behind.erase(start);
        return;
      }
    }
    for (const TokenId id : allowed) set_bit(bits, id);
  }
  if (exact_bytes != SIZE_MAX)
    for (const TokenId id : trie_.long_tokens()) {
      if (trie_.text(id).size() <= exact_bytes || !spend(1)) break;
      const auto i = static_cast<size_t>(id);
      bits[i / 32] &= ~(1U << (i % 32));
      if (step_token(config, id) != kDead) bits[i / 32] |= 1U << (i % 32);
    }
  // The mask is kept from the second visit on: a parse state that comes back is likely to recur, for example within a
  // string.
  if (!status_.ok() || ++kept.visits < 2 || num_entries(config) < 2) return;
  if (mask_bytes_ + 4 * bits.size() > limits_.cache_bytes / 2) return;
  kept.bits.assign(bits.begin(), bits.end());
  mask_bytes_ += 4 * bits.size();
}

void ConstraintCache::import(const ConstraintCache& from, std::span<uint32_t> states) {
  // The loops below rely on this: a stack has a greater number than the stacks below it.
  std::vector<uint8_t> needed(from.stacks_.size());
  for (const uint32_t state : states)
    for (size_t i = 0; i < from.num_entries(state); ++i) needed[from.entry(state, i).stack] = 1;
  for (size_t s = needed.size(); s-- > 0;)
    if (needed[s])
      for (size_t i = 0; i < from.num_frames(static_cast<uint32_t>(s)); ++i)
        needed[from.frame(static_cast<uint32_t>(s), i).stack] = 1;
  std::vector<uint32_t> number(needed.size(), kRootStack);
  number[kOpenStack] = kOpenStack;
  std::vector<Frame> frames;
  for (uint32_t s = 2; s < needed.size(); ++s) {
    if (!needed[s]) continue;
    frames.clear();
    for (size_t i = 0; i < from.num_frames(s); ++i) {
      Frame f = from.frame(s, i);
      f.stack = number[f.stack];
      frames.push_back(f);
    }
    number[s] = intern_frames(frames);
  }
  std::vector<Entry> entries;
  for (uint32_t& state : states) {
    entries.clear();
    for (size_t i = 0; i < from.num_entries(state); ++i) {
      Entry e = from.entry(state, i);
      e.stack = number[e.stack];
      entries.push_back(e);
    }
    state = intern_config(from.flags_[state] & (kAccepts | kLeaves), entries);
  }
}

}  // namespace redline
