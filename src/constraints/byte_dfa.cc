#include "constraints/byte_dfa.h"

#include <algorithm>
#include <map>

namespace redline {
namespace {

struct Nfa {
  struct Edge {
    uint8_t lo, hi;
    uint32_t to;
  };
  std::vector<std::vector<Edge>> edges;
  std::vector<std::vector<uint32_t>> empty;
  struct Assertion {
    uint32_t from, number, to;
  };
  std::vector<Assertion> assertions;

  uint32_t add_state() {
    edges.emplace_back();
    empty.emplace_back();
    return static_cast<uint32_t>(edges.size() - 1);
  }
};

Status too_large() {
  return invalid_argument("the expression needs more than {} states; use smaller repetitions", ByteDfa::kMaxStates);
}

Status build(const Grammar& grammar, Grammar::Expr expression, Nfa& nfa, uint32_t from, uint32_t to,
             CompileDeadline& deadline) {
  REDLINE_TRY(deadline.check());
  constexpr size_t kMaxNfaStates = 10 * ByteDfa::kMaxStates;
  if (nfa.edges.size() > kMaxNfaStates) return too_large();
  const Grammar::Node& node = grammar.node(expression);
  switch (node.kind) {
    case Grammar::Kind::kEmpty: nfa.empty[from].push_back(to); return {};
    case Grammar::Kind::kNothing: return {};
    case Grammar::Kind::kBytes:
      for (size_t i = 0; i < node.bytes.size(); ++i) {
        const uint32_t next = i + 1 == node.bytes.size() ? to : nfa.add_state();
        const auto byte = static_cast<uint8_t>(node.bytes[i]);
        nfa.edges[from].push_back({byte, byte, next});
        from = next;
      }
      return {};
    case Grammar::Kind::kByteRange:
      nfa.edges[from].push_back({static_cast<uint8_t>(node.first), static_cast<uint8_t>(node.last), to});
      return {};
    case Grammar::Kind::kSequence:
      for (size_t i = 0; i < node.items.size(); ++i) {
        const uint32_t next = i + 1 == node.items.size() ? to : nfa.add_state();
        REDLINE_TRY(build(grammar, node.items[i], nfa, from, next, deadline));
        from = next;
      }
      return {};
    case Grammar::Kind::kChoice:
      for (const Grammar::Expr item : node.items) {
        const uint32_t own = nfa.add_state();
        nfa.empty[from].push_back(own);
        REDLINE_TRY(build(grammar, item, nfa, own, to, deadline));
      }
      return {};
    case Grammar::Kind::kRepeat: {
      for (uint32_t i = 0; i < node.first; ++i) {
        const uint32_t next = nfa.add_state();
        REDLINE_TRY(build(grammar, node.items[0], nfa, from, next, deadline));
        from = next;
      }
      if (node.last == Grammar::kUnbounded) {
        const uint32_t loop = nfa.add_state(), end = nfa.add_state();
        nfa.empty[from].push_back(loop);
        REDLINE_TRY(build(grammar, node.items[0], nfa, loop, end, deadline));
        nfa.empty[end].push_back(loop);
        nfa.empty[loop].push_back(to);
        return {};
      }
      for (uint32_t i = node.first; i < node.last; ++i) {
        const uint32_t next = nfa.add_state();
        nfa.empty[from].push_back(to);
        REDLINE_TRY(build(grammar, node.items[0], nfa, from, next, deadline));
        from = next;
      }
      nfa.empty[from].push_back(to);
      return {};
    }
    case Grammar::Kind::kGraph: {
      std::vector<uint32_t> states(node.graph.num_states);
      for (uint32_t& state : states) state = nfa.add_state();
      nfa.empty[from].push_back(states[0]);
      for (const Grammar::GraphEdge& edge : node.graph.edges)
        REDLINE_TRY(build(grammar, edge.label, nfa, states[edge.from], states[edge.to], deadline));
      for (const uint32_t state : node.graph.accepts) nfa.empty[states[state]].push_back(to);
      return {};
    }
    case Grammar::Kind::kToken: nfa.assertions.push_back({from, node.first, to}); return {};
    case Grammar::Kind::kRule: break;
  }
  return internal("a regular language has no rules");
}

/// Returns true at index b if an edge exists for only one of the bytes b and b - 1.
std::array<bool, 257> cuts_of(const Nfa& nfa) {
  std::array<bool, 257> cuts = {};
  for (const auto& edges : nfa.edges)
    for (const Nfa::Edge& e : edges) cuts[e.lo] = cuts[e.hi + 1U] = true;
  return cuts;
}

/// Sets the class of each byte; bytes without a cut between them share a class. Returns the number of classes.
uint32_t number_classes(const std::array<bool, 257>& cuts, std::array<uint8_t, 256>& classes) {
  uint32_t last = 0;
  for (size_t b = 0; b < 256; ++b) {
    if (b > 0 && cuts[b]) ++last;
    classes[b] = static_cast<uint8_t>(last);
  }
  return last + 1;
}

}  // namespace

template <class Key, class Step, class Accepts>
Result<ByteDfa> ByteDfa::explore(const std::array<uint8_t, 256>& classes, uint32_t num_classes, Key start,
                                 const Step& step, const Accepts& accepts, CompileDeadline& deadline) {
  ByteDfa dfa;
  dfa.classes_ = classes;
  dfa.num_classes_ = num_classes;
  std::array<uint8_t, 256> byte_of = {};
  for (size_t b = 256; b-- > 0;) byte_of[classes[b]] = static_cast<uint8_t>(b);
  std::map<Key, uint32_t> numbers;
  std::vector<const Key*> keys;
  const auto number = [&](Key key) {
    const auto [found, is_new] = numbers.try_emplace(std::move(key), static_cast<uint32_t>(keys.size()));
    if (is_new) keys.push_back(&found->first);
    return found->second;
  };
  number(std::move(start));
  for (size_t at = 0; at < keys.size(); ++at) {
    if (keys.size() > kMaxStates) return too_large();
    const Key& key = *keys[at];
    dfa.accepts_.push_back(accepts(key));
    for (uint32_t c = 0; c < num_classes; ++c) {
      REDLINE_TRY(deadline.check());
      dfa.table_.push_back(number(step(key, byte_of[c])));
    }
  }
  dfa.minimize();
  return dfa;
}

Result<ByteDfa> ByteDfa::from(const Grammar& grammar, Grammar::Expr expression, CompileDeadline& deadline) {
  Nfa nfa;
  const uint32_t first = nfa.add_state(), last = nfa.add_state();
  REDLINE_TRY(build(grammar, expression, nfa, first, last, deadline));
  std::array<uint8_t, 256> classes = {};
  const uint32_t num_classes = number_classes(cuts_of(nfa), classes);
  using Set = std::vector<uint32_t>;
  std::vector<uint32_t> mark(nfa.edges.size(), 0);
  uint32_t round = 0;
  const auto close = [&](Set set) {
    ++round;
    Set work = std::move(set), closed, kept;
    for (const uint32_t s : work) mark[s] = round;
    while (!work.empty()) {
      const uint32_t s = work.back();
      work.pop_back();
      if (!nfa.edges[s].empty() || s == last) kept.push_back(s);
      for (const uint32_t to : nfa.empty[s])
        if (mark[to] != round) mark[to] = round, work.push_back(to);
    }
    std::sort(kept.begin(), kept.end());
    kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
    return kept;
  };
  return explore<Set>(
      classes, num_classes, close({first}),
      [&](const Set& set, uint8_t byte) {
        Set next;
        for (const uint32_t s : set)
          for (const Nfa::Edge& e : nfa.edges[s])
            if (e.lo <= byte && byte <= e.hi) next.push_back(e.to);
        std::sort(next.begin(), next.end());
        next.erase(std::unique(next.begin(), next.end()), next.end());
        return close(std::move(next));
      },
      [&](const Set& set) { return std::binary_search(set.begin(), set.end(), last); }, deadline);
}

// A thread is a state with the assertions about the rest of the text that it has met and that must still hold. The
// assertions about the text so far are run once, for all threads.
Result<ByteDfa> ByteDfa::from(const Grammar& grammar, Grammar::Expr expression,
                              std::span<const ByteAssertion> assertions, CompileDeadline& deadline) {
  if (assertions.empty()) return from(grammar, expression, deadline);
  Nfa nfa;
  const uint32_t first = nfa.add_state(), last = nfa.add_state();
  REDLINE_TRY(build(grammar, expression, nfa, first, last, deadline));
  std::array<bool, 257> cuts = cuts_of(nfa);
  std::vector<std::vector<Nfa::Assertion>> met(nfa.edges.size());
  for (const Nfa::Assertion& a : nfa.assertions) met[a.from].push_back(a);
  struct Ends {
    std::vector<bool> some, all;  // for each state: some text from it is accepted; every text from it is accepted
  };
  std::vector<Ends> ends;
  for (const ByteAssertion& a : assertions) {
    for (size_t b = 1; b < 256; ++b) cuts[b] = cuts[b] || a.language.classes_[b] != a.language.classes_[b - 1];
    ends.push_back({a.language.live(), a.language.complement().live()});
    ends.back().all.flip();
  }
  std::array<uint8_t, 256> classes = {};
  const uint32_t num_classes = number_classes(cuts, classes);
  using Needed = std::vector<std::pair<uint32_t, uint32_t>>;  // sorted pairs: number of an assertion and its state
  using Thread = std::pair<uint32_t, Needed>;
  using Key = std::pair<std::vector<Thread>, std::vector<uint32_t>>;
  constexpr size_t kMaxThreads = 2000;
  bool is_too_large = false;
  // Adds an assertion to the needed ones. Returns false if it cannot hold.
  const auto need = [&](Needed& needed, uint32_t number, uint32_t state) {
    if (!ends[number].some[state]) return false;
    const std::pair<uint32_t, uint32_t> entry(number, state);
    const auto at = std::lower_bound(needed.begin(), needed.end(), entry);
    if (!ends[number].all[state] && (at == needed.end() || *at != entry)) needed.insert(at, entry);
    return true;
  };
  const auto close = [&](std::vector<Thread> work, std::vector<uint32_t> behind) {
    std::sort(work.begin(), work.end());
    work.erase(std::unique(work.begin(), work.end()), work.end());
    std::map<Thread, bool> seen;
    for (const Thread& thread : work) seen.emplace(thread, true);
    std::vector<Thread> kept;
    const auto push = [&](Thread thread) {
      if (seen.size() > kMaxThreads) is_too_large = true;
      else if (seen.emplace(thread, true).second) work.push_back(std::move(thread));
    };
    while (!work.empty()) {
      const Thread thread = std::move(work.back());
      work.pop_back();
      const uint32_t s = thread.first;
      if (!nfa.edges[s].empty() || s == last) kept.push_back(thread);
      for (const uint32_t to : nfa.empty[s]) push({to, thread.second});
      for (const Nfa::Assertion& a : met[s]) {
        const ByteAssertion& assertion = assertions[a.number];
        Needed needed = thread.second;
        if (assertion.is_behind ? assertion.language.accepts(behind[a.number]) : need(needed, a.number, 0))
          push({a.to, std::move(needed)});
      }
    }
    std::sort(kept.begin(), kept.end());
    return Key(std::move(kept), std::move(behind));
  };
  Result<ByteDfa> dfa = explore<Key>(
      classes, num_classes, close({{first, {}}}, std::vector<uint32_t>(assertions.size())),
      [&](const Key& key, uint8_t byte) {
        std::vector<Thread> next;
        for (const auto& [state, needed] : key.first)
          for (const Nfa::Edge& e : nfa.edges[state]) {
            if (byte < e.lo || e.hi < byte) continue;
            Needed after;
            bool holds = true;
            for (const auto& [number, at] : needed)
              holds = holds && need(after, number, assertions[number].language.step(at, byte));
            if (holds) next.emplace_back(e.to, std::move(after));
          }
        if (next.empty()) return Key();
        std::vector<uint32_t> behind = key.second;
        for (size_t i = 0; i < behind.size(); ++i)
          if (assertions[i].is_behind) behind[i] = assertions[i].language.step(behind[i], byte);
        return close(std::move(next), std::move(behind));
      },
      [&](const Key& key) {
        return std::any_of(key.first.begin(), key.first.end(), [&](const Thread& thread) {
          return thread.first == last &&
                 std::all_of(thread.second.begin(), thread.second.end(), [&](const auto& needed) {
                   return assertions[needed.first].language.accepts(needed.second);
                 });
        });
      },
      deadline);
  if (is_too_large) return too_large();
  return dfa;
}

Grammar::Expr ByteDfa::expression(Grammar& grammar) const {
  const std::vector<bool> is_live = live();
  if (!is_live[0]) return grammar.nothing();
  Grammar::Graph graph;
  graph.num_states = num_states();
  for (uint32_t s = 0; s < num_states(); ++s) {
    if (accepts(s)) graph.accepts.push_back(s);
    for (uint32_t b = 0; is_live[s] && b < 256;) {
      const uint32_t to = step(s, static_cast<uint8_t>(b));
      uint32_t end = b + 1;
      while (end < 256 && step(s, static_cast<uint8_t>(end)) == to) ++end;
      if (is_live[to]) graph.add(s, grammar.byte_range(static_cast<uint8_t>(b), static_cast<uint8_t>(end - 1)), to);
      b = end;
    }
  }
  return grammar.graph(std::move(graph));
}

Result<ByteDfa> ByteDfa::intersect(const ByteDfa& a, const ByteDfa& b, CompileDeadline& deadline) {
  std::array<uint8_t, 256> classes = {};
  std::map<std::pair<uint8_t, uint8_t>, uint8_t> both;
  for (size_t byte = 0; byte < 256; ++byte)
    classes[byte] =
        both.try_emplace({a.classes_[byte], b.classes_[byte]}, static_cast<uint8_t>(both.size())).first->second;
  using Pair = std::pair<uint32_t, uint32_t>;
  return explore<Pair>(
      classes, static_cast<uint32_t>(both.size()), Pair(0, 0),
      [&](const Pair& p, uint8_t byte) { return Pair(a.step(p.first, byte), b.step(p.second, byte)); },
      [&](const Pair& p) { return a.accepts_[p.first] && b.accepts_[p.second]; }, deadline);
}

ByteDfa ByteDfa::complement() const {
  ByteDfa other = *this;
  other.accepts_.flip();
  return other;
}

bool ByteDfa::matches(std::string_view text) const {
  uint32_t state = 0;
  for (const char c : text) state = step(state, static_cast<uint8_t>(c));
  return accepts_[state];
}

bool ByteDfa::is_empty() const { return std::find(accepts_.begin(), accepts_.end(), true) == accepts_.end(); }

std::vector<bool> ByteDfa::live() const {
  std::vector<std::vector<uint32_t>> sources(num_states());
  std::vector<bool> live(num_states());
  std::vector<uint32_t> work;
  for (uint32_t s = 0; s < num_states(); ++s) {
    for (uint32_t c = 0; c < num_classes_; ++c) sources[table_[s * num_classes_ + c]].push_back(s);
    if (accepts_[s]) live[s] = true, work.push_back(s);
  }
  while (!work.empty()) {
    const uint32_t s = work.back();
    work.pop_back();
    for (const uint32_t from : sources[s])
      if (!live[from]) live[from] = true, work.push_back(from);
  }
  return live;
}

// Minimizes by Moore's algorithm; all states are reachable. Large automata stay as they are, because long chains would
// take quadratic time and have little to merge.
void ByteDfa::minimize() {
  const uint32_t n = num_states();
  constexpr uint32_t kMaxMinimized = 400;
  if (n > kMaxMinimized) return;
  std::vector<uint32_t> block(n);
  for (uint32_t s = 0; s < n; ++s) block[s] = accepts_[s];
  for (size_t blocks = 0;;) {
    std::map<std::vector<uint32_t>, uint32_t> numbers;
    std::vector<uint32_t> next(n), key(num_classes_ + 1);
    for (uint32_t s = 0; s < n; ++s) {
      key[0] = block[s];
      for (uint32_t c = 0; c < num_classes_; ++c) key[c + 1] = block[table_[s * num_classes_ + c]];
      next[s] = numbers.try_emplace(key, static_cast<uint32_t>(numbers.size())).first->second;
    }
    block.swap(next);  // numbered in order of the first state, so the start stays 0
    if (numbers.size() == blocks) break;
    blocks = numbers.size();
  }
  const uint32_t count = n == 0 ? 0 : *std::max_element(block.begin(), block.end()) + 1;
  std::vector<uint32_t> table(size_t{count} * num_classes_);
  std::vector<bool> accepts(count);
  for (uint32_t s = 0; s < n; ++s) {
    accepts[block[s]] = accepts_[s];
    for (uint32_t c = 0; c < num_classes_; ++c)
      table[block[s] * num_classes_ + c] = block[table_[s * num_classes_ + c]];
  }
  table_.swap(table);
  accepts_.swap(accepts);
}

}  // namespace redline
