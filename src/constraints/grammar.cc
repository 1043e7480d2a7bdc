#include "constraints/grammar.h"

#include <algorithm>

namespace redline {

CharSet normalized(const CharSet& set) {
  constexpr uint32_t kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;
  CharSet split;
  for (const CharRange& r : set) {
    const uint32_t hi = std::min(r.hi, kMaxChar);
    if (r.lo > hi) continue;
    if (hi < kFirstSurrogate || r.lo > kLastSurrogate) {
      split.push_back({r.lo, hi});
      continue;
    }
    if (r.lo < kFirstSurrogate) split.push_back({r.lo, kFirstSurrogate - 1});
    if (hi > kLastSurrogate) split.push_back({kLastSurrogate + 1, hi});
  }
  std::sort(split.begin(), split.end(), [](const CharRange& a, const CharRange& b) { return a.lo < b.lo; });
  CharSet merged;
  for (const CharRange& r : split) {
    if (!merged.empty() && r.lo <= merged.back().hi + 1) merged.back().hi = std::max(merged.back().hi, r.hi);
    else merged.push_back(r);
  }
  return merged;
}

CharSet complement(const CharSet& set) {
  CharSet rest;
  uint32_t next = 0;
  for (const CharRange& r : normalized(set)) {
    if (r.lo > next) rest.push_back({next, r.lo - 1});
    next = r.hi + 1;
  }
  if (next <= kMaxChar) rest.push_back({next, kMaxChar});
  return normalized(rest);
}

CharSet intersect(const CharSet& a, const CharSet& b) {
  CharSet both;
  const CharSet x = normalized(a), y = normalized(b);
  for (size_t i = 0, j = 0; i < x.size() && j < y.size();) {
    const uint32_t lo = std::max(x[i].lo, y[j].lo), hi = std::min(x[i].hi, y[j].hi);
    if (lo <= hi) both.push_back({lo, hi});
    if (x[i].hi < y[j].hi) ++i;
    else ++j;
  }
  return both;
}

Grammar::Grammar() {
  add({});
  Node nothing;
  nothing.kind = Kind::kNothing;
  add(std::move(nothing));
}

Grammar::Expr Grammar::add(Node node) {
  nodes_.push_back(std::move(node));
  return static_cast<Expr>(nodes_.size() - 1);
}

Grammar::Expr Grammar::bytes(std::string_view text) {
  if (text.empty()) return empty();
  Node node;
  node.kind = Kind::kBytes;
  node.bytes = text;
  return add(std::move(node));
}

Grammar::Expr Grammar::byte_range(uint8_t lo, uint8_t hi) {
  const auto [known, is_new] = byte_ranges_.try_emplace(uint32_t{lo} * 256 + hi, static_cast<Expr>(nodes_.size()));
  if (!is_new) return known->second;
  Node node;
  node.kind = Kind::kByteRange;
  node.first = lo;
  node.last = hi;
  return add(std::move(node));
}

namespace {

size_t utf8_length(uint32_t c) { return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4; }

void encode(uint32_t c, size_t length, uint8_t* out) {
  if (length == 1) {
    out[0] = static_cast<uint8_t>(c);
    return;
  }
  for (size_t i = length - 1; i > 0; --i, c >>= 6) out[i] = static_cast<uint8_t>(0x80 | (c & 0x3F));
  constexpr uint8_t kLead[] = {0, 0, 0xC0, 0xE0, 0xF0};
  out[0] = static_cast<uint8_t>(kLead[length] | c);
}

// Cuts a range of characters into sequences of byte ranges: first where the length changes, then at the largest blocks
// of continuation bytes.
template <class Emit>
void cut_utf8(uint32_t lo, uint32_t hi, const Emit& emit) {
  constexpr uint32_t kLast[] = {0x7F, 0x7FF, 0xFFFF};
  for (const uint32_t last : kLast)
    if (lo <= last && hi > last) {
      cut_utf8(lo, last, emit);
      return cut_utf8(last + 1, hi, emit);
    }
  const size_t length = utf8_length(lo);
  for (size_t i = 1; i < length; ++i) {
    const uint32_t mask = (1U << (6 * i)) - 1;
    if ((lo & ~mask) == (hi & ~mask)) continue;
    if ((lo & mask) != 0) {
      cut_utf8(lo, lo | mask, emit);
      return cut_utf8((lo | mask) + 1, hi, emit);
    }
    if ((hi & mask) != mask) {
      cut_utf8(lo, (hi & ~mask) - 1, emit);
      return cut_utf8(hi & ~mask, hi, emit);
    }
  }
  uint8_t first[4], last[4];
  encode(lo, length, first);
  encode(hi, length, last);
  emit(length, first, last);
}

}  // namespace

Grammar::Expr Grammar::chars(const CharSet& set) {
  const CharSet ranges = normalized(set);
  std::vector<std::pair<uint32_t, uint32_t>> key;
  for (const CharRange& r : ranges) key.emplace_back(r.lo, r.hi);
  if (const auto known = char_sets_.find(key); known != char_sets_.end()) return known->second;
  // The set is a graph, so that its parts share the continuation bytes 80..BF. State 1 accepts; the states from 2 on
  // wait for more continuation bytes.
  Graph g;
  g.num_states = 2;
  g.accepts = {1};
  uint32_t any[4] = {1, 0, 0, 0};  // state that waits for n continuation bytes of any value, by n
  const auto before_any = [&](size_t n) {
    for (size_t i = 1; i <= n; ++i)
      if (any[i] == 0) {
        any[i] = g.add_state();
        g.add(any[i], byte_range(0x80, 0xBF), any[i - 1]);
      }
    return any[n];
  };
  for (const CharRange& r : ranges)
    cut_utf8(r.lo, r.hi, [&](size_t length, const uint8_t* first, const uint8_t* last) {
      uint32_t state = 0;
      for (size_t i = 0; i < length; ++i) {
        bool rest_is_any = true;
        for (size_t j = i + 1; j < length; ++j) rest_is_any = rest_is_any && first[j] == 0x80 && last[j] == 0xBF;
        const uint32_t next = rest_is_any ? before_any(length - 1 - i) : g.add_state();
        g.add(state, byte_range(first[i], last[i]), next);
        if (rest_is_any) break;
        state = next;
      }
    });
  if (g.edges.empty()) return nothing();
  return char_sets_[std::move(key)] = graph(std::move(g));
}

Grammar::Expr Grammar::sequence(std::vector<Expr> items) {
  std::erase(items, empty());
  for (const Expr item : items)
    if (item == nothing()) return nothing();
  if (items.empty()) return empty();
  if (items.size() == 1) return items[0];
  Node node;
  node.kind = Kind::kSequence;
  node.items = std::move(items);
  return add(std::move(node));
}

Grammar::Expr Grammar::choice(std::vector<Expr> items) {
  std::erase(items, nothing());
  if (items.empty()) return nothing();
  if (items.size() == 1) return items[0];
  Node node;
  node.kind = Kind::kChoice;
  node.items = std::move(items);
  return add(std::move(node));
}

namespace {

/// An index of states by their edges. States with at most one edge, which are most, are in a table that needs no
/// strings.
class StatesByEdges {
 public:
  /// Returns the number of the state with these edges. If there is none, records it as `number` and returns that.
  uint32_t find_or_add(bool accepts, const std::vector<std::pair<uint8_t, uint32_t>>& edges, uint32_t number) {
    if (edges.size() > 1) {
      std::string key(1, accepts ? 'a' : ' ');
      for (const auto& [byte, to] : edges) {
        key += static_cast<char>(byte);
        for (int shift = 0; shift < 32; shift += 8) key += static_cast<char>(to >> shift & 0xFF);
      }
      return many_.try_emplace(std::move(key), number).first->second;
    }
    if (2 * (size_ + 1) > slots_.size()) grow();
    const uint64_t key =
        edges.empty() ? 1
                      : uint64_t{accepts} << 41 | uint64_t{edges[0].first} << 33 | uint64_t{edges[0].second} << 1 | 1;
    Slot& slot = slot_of(key);
    if (slot.key == 0) slot = {key, number}, ++size_;
    return slot.state;
  }

 private:
  struct Slot {
    uint64_t key = 0;  ///< acceptance and edge of the state; 0: the slot is free
    uint32_t state = 0;
  };
  Slot& slot_of(uint64_t key) {
    size_t at = (key * 0x9E3779B97F4A7C15ULL) >> 20 & (slots_.size() - 1);
    while (slots_[at].key != 0 && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
    return slots_[at];
  }
  void grow() {
    std::vector<Slot> old(std::max<size_t>(64, 2 * slots_.size()));
    old.swap(slots_);
    for (const Slot& slot : old)
      if (slot.key != 0) slot_of(slot.key) = slot;
  }
  std::vector<Slot> slots_;
  size_t size_ = 0;
  std::unordered_map<std::string, uint32_t> many_;
};

}  // namespace

Grammar::Expr Grammar::choice_of_texts(std::vector<std::string> texts, CompileDeadline* deadline) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  if (texts.empty()) return nothing();
  if (texts.size() == 1) return bytes(texts[0]);
  // The result is the minimal automaton, built from sorted texts (Daciuk, Mihov, Watson, Watson 2000). The states
  // behind the part that a text shares with the next one are complete, and complete states with the same edges are one.
  struct Open {
    bool accepts = false;
    std::vector<std::pair<uint8_t, uint32_t>> edges;  // the target of the last one is known when it is complete
  };
  Graph g;
  StatesByEdges complete;
  std::vector<Open> path(1);  // states along the previous text, and memory for more
  size_t depth = 0;           // depth of the last state of the previous text
  const auto add_edges = [&](uint32_t state, const Open& open) {
    for (size_t i = 0; i < open.edges.size();) {  // neighboring bytes to the same state are one edge
      size_t end = i + 1;
      while (end < open.edges.size() && open.edges[end].second == open.edges[i].second &&
             open.edges[end].first == open.edges[end - 1].first + 1)
        ++end;
      g.add(state, byte_range(open.edges[i].first, open.edges[end - 1].first), open.edges[i].second);
      i = end;
    }
    if (open.accepts) g.accepts.push_back(state);
  };
  const auto close = [&](size_t to) {
    for (; depth > to; --depth) {
      Open& open = path[depth];
      const uint32_t state = complete.find_or_add(open.accepts, open.edges, g.num_states);
      if (state == g.num_states) add_edges(g.add_state(), open);
      path[depth - 1].edges.back().second = state;
      open.accepts = false;
      open.edges.clear();
    }
  };
  std::string_view previous;
  for (const std::string& text : texts) {
    if (deadline != nullptr && !deadline->check().ok()) return nothing();
    size_t common = 0;
    while (common < previous.size() && common < text.size() && previous[common] == text[common]) ++common;
    close(common);
    if (path.size() <= text.size()) path.resize(text.size() + 1);
    for (size_t i = common; i < text.size(); ++i) path[i].edges.emplace_back(static_cast<uint8_t>(text[i]), 0);
    depth = text.size();
    path[depth].accepts = true;
    previous = text;
  }
  close(0);
  add_edges(0, path[0]);
  return graph(std::move(g));
}

Grammar::Expr Grammar::repeat(Expr item, uint32_t least, uint32_t greatest) {
  if (greatest == 0 || item == empty()) return empty();
  if (least == 1 && greatest == 1) return item;
  if (item == nothing()) return least == 0 ? empty() : nothing();
  Node node;
  node.kind = Kind::kRepeat;
  node.first = least;
  node.last = greatest;
  node.items = {item};
  return add(std::move(node));
}

Grammar::Expr Grammar::call(Rule rule) {
  Node node;
  node.kind = Kind::kRule;
  node.first = rule;
  return add(std::move(node));
}

Grammar::Expr Grammar::token(int32_t id, bool negated) {
  Node node;
  node.kind = Kind::kToken;
  node.first = static_cast<uint32_t>(id);
  node.negated = negated;
  return add(std::move(node));
}

Grammar::Expr Grammar::graph(Graph graph) {
  Node node;
  node.kind = Kind::kGraph;
  node.graph = std::move(graph);
  return add(std::move(node));
}

Grammar::Rule Grammar::add_rule(std::string name) {
  rules_.push_back({.name = std::move(name), .body = std::nullopt});
  return static_cast<Rule>(rules_.size() - 1);
}

void Grammar::define_counted(Rule rule, Expr graph, uint32_t least, uint32_t greatest) {
  rules_[rule].body = graph;
  rules_[rule].is_counted = true;
  rules_[rule].least = least;
  rules_[rule].greatest = greatest;
}

}  // namespace redline
