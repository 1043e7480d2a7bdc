// The compiler from a grammar to an automaton over bytes. It has over 600 lines because it is one construction, whose
// passes share its tables.
#include "constraints/automaton.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace redline {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

enum class EdgeKind : uint8_t { kEmpty, kTick, kBytes, kCall, kToken };
struct Edge {
  EdgeKind kind;
  uint8_t lo = 0, hi = 0;
  bool negated = false;
  bool strict = false;  // for kCall: there is no edge past the call, even if the rule may be empty
  uint32_t value = 0;   // number of the rule for kCall, id of the token for kToken
  uint32_t to = 0;
};

/// A list of edges. The first one needs no allocation, because most states of texts and numbers have only one.
class Edges {
 public:
  size_t size() const { return size_; }
  Edge& operator[](size_t i) { return i == 0 ? first_ : more_[i - 1]; }
  const Edge& operator[](size_t i) const { return i == 0 ? first_ : more_[i - 1]; }
  void push_back(const Edge& edge) {
    if (size_++ == 0) first_ = edge;
    else more_.push_back(edge);
  }
  void clear() {
    size_ = 0;
    more_.clear();
  }
  template <class IsGone>
  void erase_if(const IsGone& is_gone) {
    size_t kept = 0;
    for (size_t i = 0; i < size_; ++i)
      if (!is_gone((*this)[i])) (*this)[kept++] = (*this)[i];
    size_ = static_cast<uint32_t>(kept);
    more_.resize(kept > 0 ? kept - 1 : 0);
  }
  template <class List, class Value>
  struct Iterator {
    List* edges;
    size_t at;
    Value& operator*() const { return (*edges)[at]; }
    Iterator& operator++() {
      ++at;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return at != other.at; }
  };
  auto begin() const { return Iterator<const Edges, const Edge>{this, 0}; }
  auto end() const { return Iterator<const Edges, const Edge>{this, size_}; }

 private:
  uint32_t size_ = 0;
  Edge first_{EdgeKind::kEmpty};
  std::vector<Edge> more_;
};

struct BuildState {
  Edges edges;
  uint32_t rule = 0;
  bool accepts = false;
};

struct BuildRule {
  std::string name;
  uint32_t start = kNone;
  bool is_counted = false;
  uint32_t least = 0, greatest = Automaton::kUnbounded;
  uint32_t nullable_body = kNone;  // rule of the repeated body; if it may be empty, `least` becomes 0
  bool is_nullable = false, is_productive = false;
};

// Strongly connected components (Tarjan 1972) without recursion, numbered so that successors have smaller numbers.
struct Components {
  std::vector<uint32_t> of;
  uint32_t count = 0;
};
template <class Successors>
Components find_components(uint32_t n, const Successors& successors) {
  Components result;
  result.of.assign(n, kNone);
  std::vector<uint32_t> index(n, kNone), low(n, 0), stack;
  struct Frame {
    uint32_t node;
    std::vector<uint32_t> next;
    size_t at;
  };
  std::vector<Frame> frames;
  uint32_t counter = 0;
  const auto enter = [&](uint32_t v) {
    index[v] = low[v] = counter++;
    stack.push_back(v);
    frames.push_back({v, successors(v), 0});
  };
  for (uint32_t root = 0; root < n; ++root) {
    if (index[root] != kNone) continue;
    enter(root);
    while (!frames.empty()) {
      Frame& f = frames.back();
      if (f.at < f.next.size()) {
        const uint32_t w = f.next[f.at++];
        if (index[w] == kNone) enter(w);
        else if (result.of[w] == kNone) low[f.node] = std::min(low[f.node], index[w]);
        continue;
      }
      const uint32_t v = f.node;
      frames.pop_back();
      if (!frames.empty()) low[frames.back().node] = std::min(low[frames.back().node], low[v]);
      if (low[v] != index[v]) continue;
      for (uint32_t w = kNone; w != v;) {
        w = stack.back();
        stack.pop_back();
        result.of[w] = result.count;
      }
      ++result.count;
    }
  }
  return result;
}

}  // namespace

class AutomatonBuilder {
 public:
  AutomatonBuilder(const Grammar& grammar, const ConstraintLimits& limits, CompileDeadline& deadline)
      : grammar_(grammar), limits_(limits), deadline_(deadline) {}

  Result<Automaton> build() {
    rules_.resize(grammar_.rules().size());
    find_nullable_expressions();
    for (uint32_t r = 0; r < grammar_.rules().size(); ++r) {
      const Grammar::RuleInfo& info = grammar_.rules()[r];
      rules_[r].name = info.name;
      if (!info.body) return invalid_argument("rule {} is not defined", info.name);
      rules_[r].is_counted = info.is_counted;
      rules_[r].least = info.least;
      rules_[r].greatest = info.greatest;
      pending_.push_back({r, *info.body});
    }
    REDLINE_TRY(choose_inlined());
    while (!pending_.empty()) {
      const auto [rule, body] = pending_.back();
      pending_.pop_back();
      is_loop_ = rule < is_recursive_.size() ? is_recursive_[rule] : true;
      const uint32_t start = new_state(rule), end = new_state(rule);
      rules_[rule].start = start;
      states_[end].accepts = true;
      REDLINE_TRY(add_expression(rule, body, start, end));
    }
    REDLINE_TRY(find_nullable());
    REDLINE_TRY(skip_nullable_calls());
    REDLINE_TRY(find_productive());
    if (!rules_[grammar_.root].is_productive) return invalid_argument("the constraint matches no text");
    REDLINE_TRY(trim());
    root_ = grammar_.root;
    REDLINE_TRY(remove_left_recursion());
    REDLINE_TRY(trim());
    return finish();
  }

 private:
  uint32_t new_state(uint32_t rule) {
    states_.push_back({{}, rule, false});
    return static_cast<uint32_t>(states_.size() - 1);
  }
  Status add_edge(uint32_t from, Edge edge) {
    states_[from].edges.push_back(edge);
    ++num_edges_;
    return check_size();
  }
  Status check_size() {
    REDLINE_TRY(deadline_.check());
    if (states_.size() > limits_.max_states || num_edges_ > 4 * limits_.max_states)
      return invalid_argument("the constraint needs more than {} states", limits_.max_states);
    return {};
  }

  // Computes for each expression whether it may match the empty text, where a call counts as empty, and the number of
  // states of its automaton.
  void find_nullable_expressions() {
    maybe_empty_.resize(grammar_.num_nodes());
    cost_.resize(grammar_.num_nodes());
    constexpr uint64_t kMuch = 1U << 30;
    for (uint32_t e = 0; e < grammar_.num_nodes(); ++e) {
      const Grammar::Node& node = grammar_.node(e);
      bool empty = false;
      uint64_t cost = 1;
      switch (node.kind) {
        case Grammar::Kind::kEmpty: empty = true; break;
        case Grammar::Kind::kNothing:
        case Grammar::Kind::kByteRange:
        case Grammar::Kind::kToken: break;
        case Grammar::Kind::kBytes: cost = node.bytes.size(); break;
        case Grammar::Kind::kRule: empty = true; break;
        case Grammar::Kind::kSequence:
          empty = true;
          for (const auto item : node.items) empty = empty && maybe_empty_[item], cost += cost_[item];
          break;
        case Grammar::Kind::kChoice:
          for (const auto item : node.items) empty = empty || maybe_empty_[item], cost += cost_[item];
          break;
        case Grammar::Kind::kRepeat:
          empty = node.first == 0 || maybe_empty_[node.items[0]];
          cost = does_unroll(node) ? cost_[node.items[0]] * std::max<uint64_t>(1, copies(node)) : 2;
          break;
        case Grammar::Kind::kGraph:
          cost = node.graph.num_states;
          for (const auto& edge : node.graph.edges) cost += cost_[edge.label];
          empty = true;
          if (std::find(node.graph.accepts.begin(), node.graph.accepts.end(), 0U) == node.graph.accepts.end()) {
            empty = false;
            for (const auto& edge : node.graph.edges) empty = empty || maybe_empty_[edge.label];
          }
          break;
      }
      maybe_empty_[e] = empty;
      cost_[e] = static_cast<uint32_t>(std::min(cost, kMuch));
    }
  }

  // Chooses the rules that become part of the rules that call them: short rules that do not call themselves. The masks
  // of a state without calls depend less on the stack. In a loop, longer rules are worth it as well, for example the
  // characters of a string.
  Status choose_inlined() {
    const auto n = static_cast<uint32_t>(rules_.size());
    std::vector<std::vector<uint32_t>> calls(n);
    std::vector<uint32_t> seen(grammar_.num_nodes(), kNone);  // last rule in which each expression was met
    for (uint32_t r = 0; r < n; ++r) {
      std::vector<Grammar::Expr> work = {*grammar_.rules()[r].body};
      while (!work.empty()) {
        REDLINE_TRY(deadline_.check());
        const Grammar::Expr e = work.back();
        work.pop_back();
        if (std::exchange(seen[e], r) == r) continue;
        const Grammar::Node& node = grammar_.node(e);
        if (node.kind == Grammar::Kind::kRule) calls[r].push_back(node.first);
        work.insert(work.end(), node.items.begin(), node.items.end());
        for (const auto& edge : node.graph.edges) work.push_back(edge.label);
      }
    }
    const Components components = find_components(n, [&](uint32_t r) { return calls[r]; });
    std::vector<std::vector<uint32_t>> members(components.count);
    for (uint32_t r = 0; r < n; ++r) members[components.of[r]].push_back(r);
    is_recursive_.assign(n, 0);
    inline_cost_.assign(n, UINT32_MAX);
    for (const std::vector<uint32_t>& group : members)
      for (const uint32_t r : group) {
        const bool calls_itself = std::find(calls[r].begin(), calls[r].end(), r) != calls[r].end();
        is_recursive_[r] = group.size() > 1 || calls_itself;
        if (is_recursive_[r] || rules_[r].is_counted) continue;
        uint64_t cost = cost_[*grammar_.rules()[r].body];
        for (const uint32_t callee : calls[r])
          if (inline_cost_[callee] <= kMaxInlinedInLoop) cost += inline_cost_[callee];
        inline_cost_[r] = static_cast<uint32_t>(std::min<uint64_t>(cost, UINT32_MAX));
      }
    return {};
  }
  static constexpr uint32_t kMaxInlined = 12, kMaxInlinedInLoop = 160;

  static uint64_t copies(const Grammar::Node& repeat) {
    return repeat.last == Grammar::kUnbounded ? repeat.first : repeat.last;
  }
  // Returns true if a repetition becomes copies of its states. Long repetitions are counted instead.
  bool does_unroll(const Grammar::Node& repeat) const {
    constexpr uint64_t kMaxUnrolled = 64;
    const uint64_t n = copies(repeat);
    return n <= 1 || n * cost_[repeat.items[0]] <= kMaxUnrolled;
  }

  Status add_expression(uint32_t rule, Grammar::Expr expression, uint32_t from, uint32_t to) {
    const Grammar::Node& node = grammar_.node(expression);
    switch (node.kind) {
      case Grammar::Kind::kEmpty: return add_edge(from, {.kind = EdgeKind::kEmpty, .to = to});
      case Grammar::Kind::kNothing: return {};
      case Grammar::Kind::kBytes:
        for (size_t i = 0; i < node.bytes.size(); ++i) {
          const uint32_t next = i + 1 == node.bytes.size() ? to : new_state(rule);
          const auto byte = static_cast<uint8_t>(node.bytes[i]);
          REDLINE_TRY(add_edge(from, {.kind = EdgeKind::kBytes, .lo = byte, .hi = byte, .to = next}));
          from = next;
        }
        return {};
      case Grammar::Kind::kByteRange:
        return add_edge(from, {.kind = EdgeKind::kBytes,
                               .lo = static_cast<uint8_t>(node.first),
                               .hi = static_cast<uint8_t>(node.last),
                               .to = to});
      case Grammar::Kind::kSequence:
        for (size_t i = 0; i < node.items.size(); ++i) {
          const uint32_t next = i + 1 == node.items.size() ? to : new_state(rule);
          REDLINE_TRY(add_expression(rule, node.items[i], from, next));
          from = next;
        }
        return {};
      case Grammar::Kind::kChoice:
        for (const Grammar::Expr item : node.items) {
          // Each alternative has a start of its own, so that a loop at its start does not lead into the others.
          const uint32_t own = new_state(rule), end = new_state(rule);
          REDLINE_TRY(add_edge(from, {.kind = EdgeKind::kEmpty, .to = own}));
          REDLINE_TRY(add_expression(rule, item, own, end));
          REDLINE_TRY(add_edge(end, {.kind = EdgeKind::kEmpty, .to = to}));
        }
        return {};
      case Grammar::Kind::kRepeat: return add_repeat(rule, node, from, to);
      case Grammar::Kind::kRule: {
        if (inline_cost_[node.first] > (is_loop_ ? kMaxInlinedInLoop : kMaxInlined))
          return add_edge(from, {.kind = EdgeKind::kCall, .value = node.first, .to = to});
        const uint32_t start = new_state(rule), end = new_state(rule);
        REDLINE_TRY(add_edge(from, {.kind = EdgeKind::kEmpty, .to = start}));
        REDLINE_TRY(add_expression(rule, *grammar_.rules()[node.first].body, start, end));
        return add_edge(end, {.kind = EdgeKind::kEmpty, .to = to});
      }
      case Grammar::Kind::kToken:
        return add_edge(from, {.kind = EdgeKind::kToken, .negated = node.negated, .value = node.first, .to = to});
      case Grammar::Kind::kGraph: return add_graph(rule, node.graph, from, to);
    }
    return {};
  }

  Status add_graph(uint32_t rule, const Grammar::Graph& graph, uint32_t from, uint32_t to) {
    std::vector<uint32_t> states(graph.num_states), ticking(graph.num_states, kNone);
    for (uint32_t& state : states) state = new_state(rule);
    REDLINE_TRY(add_edge(from, {.kind = EdgeKind::kEmpty, .to = states[0]}));
    for (const Grammar::GraphEdge& edge : graph.edges) {
      uint32_t target = states[edge.to];
      if (edge.ticks) {
        if (ticking[edge.to] == kNone) {
          ticking[edge.to] = new_state(rule);
          REDLINE_TRY(add_edge(ticking[edge.to], {.kind = EdgeKind::kTick, .to = target}));
        }
        target = ticking[edge.to];
      }
      REDLINE_TRY(add_expression(rule, edge.label, states[edge.from], target));
    }
    for (const uint32_t state : graph.accepts)
      REDLINE_TRY(add_edge(states[state], {.kind = EdgeKind::kEmpty, .to = to}));
    return {};
  }

  Status add_repeat(uint32_t rule, const Grammar::Node& node, uint32_t from, uint32_t to) {
    const bool was_loop = std::exchange(is_loop_, is_loop_ || copies(node) > 1 || node.last == Grammar::kUnbounded);
    Status status = add_copies(rule, node, from, to);
    is_loop_ = was_loop;
    return status;
  }

  Status add_copies(uint32_t rule, const Grammar::Node& node, uint32_t from, uint32_t to) {
    const Grammar::Expr item = node.items[0];
    if (!does_unroll(node)) {
      const auto counted = static_cast<uint32_t>(rules_.size());
      rules_.push_back({.name = "a repetition", .is_counted = true, .least = node.first, .greatest = node.last});
      REDLINE_TRY(add_edge(from, {.kind = EdgeKind::kCall, .value = counted, .to = to}));
      const uint32_t start = new_state(counted), loop = new_state(counted), end = new_state(counted);
      rules_[counted].start = start;
      states_[loop].accepts = true;
      REDLINE_TRY(add_edge(start, {.kind = EdgeKind::kEmpty, .to = loop}));
      REDLINE_TRY(add_edge(end, {.kind = EdgeKind::kTick, .to = loop}));
      if (!maybe_empty_[item]) return add_expression(counted, item, loop, end);
      // A body that may be empty must not be counted without end. So each repetition is a call, which matches at least
      // one byte.
      const auto body = static_cast<uint32_t>(rules_.size());
      rules_.push_back({.name = "a repetition"});
      rules_[counted].nullable_body = body;
      pending_.push_back({body, item});
      return add_edge(loop, {.kind = EdgeKind::kCall, .strict = true, .value = body, .to = end});
    }
    for (uint32_t i = 0; i < node.first; ++i) {
      const uint32_t next = new_state(rule);
      REDLINE_TRY(add_expression(rule, item, from, next));
      from = next;
    }
    if (node.last == Grammar::kUnbounded) {
      const uint32_t loop = new_state(rule), end = new_state(rule);
      REDLINE_TRY(add_edge(from, {.kind = EdgeKind::kEmpty, .to = loop}));
      REDLINE_TRY(add_expression(rule, item, loop, end));
      REDLINE_TRY(add_edge(end, {.kind = EdgeKind::kEmpty, .to = loop}));
      return add_edge(loop, {.kind = EdgeKind::kEmpty, .to = to});
    }
    for (uint32_t i = node.first; i < node.last; ++i) {
      const uint32_t next = new_state(rule);
      REDLINE_TRY(add_edge(from, {.kind = EdgeKind::kEmpty, .to = to}));
      REDLINE_TRY(add_expression(rule, item, from, next));
      from = next;
    }
    return add_edge(from, {.kind = EdgeKind::kEmpty, .to = to});
  }

  // Reaches states from the starts of all rules; `crosses(edge)` may defer an edge to a rule by returning its number.
  // Calls wait until `done` holds for their rule.
  template <class IsDone, class Reached>
  Status propagate(const IsDone& crosses, const Reached& reached) {
    std::vector<uint8_t> seen(states_.size());
    std::vector<uint32_t> work;
    std::vector<std::vector<uint32_t>> waiting(rules_.size());
    const auto push = [&](uint32_t s) {
      if (!std::exchange(seen[s], 1)) work.push_back(s);
    };
    for (const BuildRule& rule : rules_) push(rule.start);
    std::vector<uint32_t> completed;
    while (!work.empty()) {
      const uint32_t s = work.back();
      work.pop_back();
      REDLINE_TRY(deadline_.check());
      reached(s, completed);
      for (const Edge& edge : states_[s].edges) {
        const uint32_t rule = crosses(edge);
        if (rule == kCross) push(edge.to);
        else if (rule != kBlocked) waiting[rule].push_back(edge.to);
      }
      while (!completed.empty()) {
        const uint32_t rule = completed.back();
        completed.pop_back();
        for (const uint32_t to : waiting[rule]) push(to);
        waiting[rule].clear();
      }
    }
    return {};
  }
  static constexpr uint32_t kCross = UINT32_MAX, kBlocked = UINT32_MAX - 1;

  Status find_nullable() {
    // A repetition whose body may be empty matches the empty text whatever its least number.
    std::unordered_map<uint32_t, uint32_t> counted_of_body;
    for (uint32_t r = 0; r < rules_.size(); ++r)
      if (rules_[r].nullable_body != kNone) counted_of_body[rules_[r].nullable_body] = r;
    const auto complete = [&](uint32_t rule, std::vector<uint32_t>& completed) {
      while (!rules_[rule].is_nullable) {
        rules_[rule].is_nullable = true;
        completed.push_back(rule);
        const auto counted = counted_of_body.find(rule);
        if (counted == counted_of_body.end()) break;
        rule = counted->second;
        rules_[rule].least = 0;
      }
    };
    return propagate(
        [&](const Edge& edge) {
          if (edge.kind == EdgeKind::kEmpty) return kCross;
          if (edge.kind != EdgeKind::kCall || edge.strict) return kBlocked;
          return rules_[edge.value].is_nullable ? kCross : edge.value;
        },
        [&](uint32_t s, std::vector<uint32_t>& completed) {
          const BuildState& state = states_[s];
          const BuildRule& rule = rules_[state.rule];
          if (state.accepts && (!rule.is_counted || rule.least == 0)) complete(state.rule, completed);
        });
  }

  Status skip_nullable_calls() {
    for (uint32_t s = 0; s < states_.size(); ++s) {
      REDLINE_TRY(deadline_.check());
      for (size_t i = 0; i < states_[s].edges.size(); ++i) {
        const Edge edge = states_[s].edges[i];
        if (edge.kind == EdgeKind::kCall && !edge.strict && rules_[edge.value].is_nullable)
          REDLINE_TRY(add_edge(s, {.kind = EdgeKind::kEmpty, .to = edge.to}));
      }
    }
    return {};
  }

  Status find_productive() {
    std::vector<uint8_t> has_ticked(rules_.size()), has_accepted(rules_.size());
    return propagate(
        [&](const Edge& edge) {
          if (edge.kind != EdgeKind::kCall) return kCross;
          return rules_[edge.value].is_productive ? kCross : edge.value;
        },
        [&](uint32_t s, std::vector<uint32_t>& completed) {
          const BuildState& state = states_[s];
          BuildRule& rule = rules_[state.rule];
          for (const Edge& edge : state.edges)
            if (edge.kind == EdgeKind::kTick) has_ticked[state.rule] = 1;
          if (state.accepts) has_accepted[state.rule] = 1;
          if (rule.is_productive || !has_accepted[state.rule]) return;
          if (rule.is_counted && rule.least > 0 && !has_ticked[state.rule]) return;
          rule.is_productive = true;
          completed.push_back(state.rule);
        });
  }

  // Drops calls of rules that match no text at all, and edges to states from which the end cannot be reached.
  Status trim() {
    // The sources of the edges to state s are sources[first[s]] .. sources[first[s + 1] - 1].
    std::vector<uint32_t> first(states_.size() + 2), sources;
    for (BuildState& state : states_) {
      REDLINE_TRY(deadline_.check());
      state.edges.erase_if([&](const Edge& e) { return e.kind == EdgeKind::kCall && !rules_[e.value].is_productive; });
      for (const Edge& edge : state.edges) ++first[edge.to + 2];
    }
    for (size_t s = 2; s < first.size(); ++s) first[s] += first[s - 1];
    sources.resize(first.back());
    std::vector<uint8_t> ends(states_.size());
    std::vector<uint32_t> work;
    for (uint32_t s = 0; s < states_.size(); ++s) {
      REDLINE_TRY(deadline_.check());
      for (const Edge& edge : states_[s].edges) sources[first[edge.to + 1]++] = s;
      if (states_[s].accepts) ends[s] = 1, work.push_back(s);
    }
    while (!work.empty()) {
      REDLINE_TRY(deadline_.check());
      const uint32_t s = work.back();
      work.pop_back();
      for (uint32_t i = first[s]; i < first[s + 1]; ++i)
        if (!std::exchange(ends[sources[i]], 1)) work.push_back(sources[i]);
    }
    for (BuildState& state : states_) state.edges.erase_if([&](const Edge& e) { return !ends[e.to]; });
    return {};
  }

  // Returns the edges by which a rule can begin, without empty edges and ticks.
  std::vector<Edge> first_edges(uint32_t start) const {
    std::vector<Edge> first;
    std::vector<uint32_t> work = {start};
    std::unordered_map<uint32_t, bool> seen = {{start, true}};
    while (!work.empty()) {
      const uint32_t s = work.back();
      work.pop_back();
      for (const Edge& edge : states_[s].edges) {
        // No repetition has ended before the first byte, so a tick there counts nothing.
        if (edge.kind == EdgeKind::kTick) continue;
        if (edge.kind != EdgeKind::kEmpty) first.push_back(edge);
        else if (seen.emplace(edge.to, true).second) work.push_back(edge.to);
      }
    }
    return first;
  }
  std::vector<uint32_t> first_calls(uint32_t rule) const {
    std::vector<uint32_t> calls;
    for (const Edge& edge : first_edges(rules_[rule].start))
      if (edge.kind == EdgeKind::kCall) calls.push_back(edge.value);
    std::sort(calls.begin(), calls.end());
    calls.erase(std::unique(calls.begin(), calls.end()), calls.end());
    return calls;
  }

  // Rules that begin with calls of each other are replaced, for each goal A among them, by one automaton with a copy of
  // the states of all: it begins with the parts that do not call, and where a copy of rule B ends, it continues after
  // each call of B at the beginning of a rule (the left-corner transform, Rosenkrantz and Lewis 1970, on automata).
  Status remove_left_recursion() {
    const auto num_rules = static_cast<uint32_t>(rules_.size());
    const Components components = find_components(num_rules, [&](uint32_t r) { return first_calls(r); });
    std::vector<std::vector<uint32_t>> members(components.count);
    for (uint32_t r = 0; r < num_rules; ++r) members[components.of[r]].push_back(r);
    std::vector<std::vector<uint32_t>> states_of(num_rules);
    for (uint32_t s = 0; s < states_.size(); ++s) states_of[states_[s].rule].push_back(s);
    for (const std::vector<uint32_t>& group : members) {
      REDLINE_TRY(deadline_.check());
      if (group.size() == 1) {
        const std::vector<uint32_t> calls = first_calls(group[0]);
        if (!std::binary_search(calls.begin(), calls.end(), group[0])) continue;
      }
      for (const uint32_t r : group)
        if (rules_[r].is_counted)
          return invalid_argument("left recursion through a repetition that counts ({} to {} times)", rules_[r].least,
                                  rules_[r].greatest);
      std::unordered_map<uint32_t, std::vector<Edge>> firsts;
      for (const uint32_t r : group) firsts[r] = first_edges(rules_[r].start);
      // The old states stay as the source of the copies until all goals are made.
      std::vector<std::pair<uint32_t, uint32_t>> starts;
      for (const uint32_t goal : group) {
        if (!rules_[goal].is_productive) continue;
        std::unordered_map<uint32_t, uint32_t> copy;
        for (const uint32_t r : group)
          for (const uint32_t s : states_of[r]) {
            copy[s] = new_state(goal);
            REDLINE_TRY(check_size());
          }
        const uint32_t start = new_state(goal);
        starts.push_back({goal, start});
        for (const uint32_t r : group) {
          for (const Edge& edge : firsts[r]) {
            if (edge.kind == EdgeKind::kCall && components.of[edge.value] == components.of[goal]) continue;
            Edge first = edge;
            first.to = copy[edge.to];
            REDLINE_TRY(add_edge(start, first));
          }
          for (const uint32_t s : states_of[r]) {
            for (size_t i = 0; i < states_[s].edges.size(); ++i) {
              Edge edge = states_[s].edges[i];
              edge.to = copy[edge.to];
              REDLINE_TRY(add_edge(copy[s], edge));
            }
            if (!states_[s].accepts) continue;
            if (r == goal) states_[copy[s]].accepts = true;
            for (const uint32_t outer : group)
              for (const Edge& edge : firsts[outer])
                if (edge.kind == EdgeKind::kCall && edge.value == r)
                  REDLINE_TRY(add_edge(copy[s], {.kind = EdgeKind::kEmpty, .to = copy[edge.to]}));
          }
        }
      }
      for (const uint32_t r : group)
        for (const uint32_t s : states_of[r]) states_[s].accepts = false, states_[s].edges.clear();
      for (const auto& [goal, start] : starts) rules_[goal].start = start;
    }
    return {};
  }

  // Computes the least and the greatest number of ticks from each state of a counted rule to its end.
  Status count_ticks(const std::vector<uint32_t>& members) {
    const auto n = static_cast<uint32_t>(members.size());
    std::unordered_map<uint32_t, uint32_t> place;
    for (uint32_t i = 0; i < n; ++i) place[members[i]] = i;
    const Components components = find_components(n, [&](uint32_t i) {
      std::vector<uint32_t> next;
      for (const Edge& edge : states_[members[i]].edges) next.push_back(place[edge.to]);
      return next;
    });
    std::vector<std::vector<uint32_t>> groups(components.count);
    for (uint32_t i = 0; i < n; ++i) groups[components.of[i]].push_back(i);
    constexpr int64_t kNever = -1;
    std::vector<int64_t> longest(components.count, kNever);  // successors have smaller numbers
    for (uint32_t c = 0; c < components.count; ++c) {
      REDLINE_TRY(deadline_.check());
      for (const uint32_t i : groups[c]) {
        if (states_[members[i]].accepts) longest[c] = std::max<int64_t>(longest[c], 0);
        for (const Edge& edge : states_[members[i]].edges) {
          const uint32_t to = components.of[place[edge.to]];
          const int64_t tick = edge.kind == EdgeKind::kTick;
          if (to == c && tick) longest[c] = Automaton::kUnbounded;
          if (to != c && longest[to] != kNever)
            longest[c] = std::max(longest[c], std::min<int64_t>(longest[to] + tick, Automaton::kUnbounded));
        }
      }
    }
    for (uint32_t i = 0; i < n; ++i)
      greatest_[members[i]] = static_cast<uint32_t>(std::max<int64_t>(longest[components.of[i]], 0));
    // The search is breadth-first from the ends, and takes edges without a tick first.
    std::vector<std::vector<std::pair<uint32_t, bool>>> sources(n);
    std::vector<uint32_t> level, next_level;
    for (uint32_t i = 0; i < n; ++i) {
      for (const Edge& edge : states_[members[i]].edges)
        sources[place[edge.to]].push_back({i, edge.kind == EdgeKind::kTick});
      least_[members[i]] = Automaton::kUnbounded;
      if (states_[members[i]].accepts) level.push_back(i);
    }
    for (uint32_t distance = 0; !level.empty(); ++distance) {
      next_level.clear();
      while (!level.empty()) {
        const uint32_t i = level.back();
        level.pop_back();
        if (least_[members[i]] <= distance) continue;
        least_[members[i]] = distance;
        for (const auto& [from, ticks] : sources[i]) (ticks ? next_level : level).push_back(from);
      }
      level.swap(next_level);
    }
    return {};
  }

  // Returns true if every path from the state reaches the end of the rule without another byte or call.
  bool only_ends(uint32_t state) const {
    bool accepts = false;
    std::vector<uint32_t> work = {state}, seen = {state};
    constexpr size_t kMaxSteps = 16;
    while (!work.empty()) {
      const uint32_t s = work.back();
      work.pop_back();
      accepts = accepts || states_[s].accepts;
      for (const Edge& edge : states_[s].edges) {
        if (edge.kind != EdgeKind::kEmpty || seen.size() > kMaxSteps) return false;
        if (std::find(seen.begin(), seen.end(), edge.to) != seen.end()) continue;
        seen.push_back(edge.to);
        work.push_back(edge.to);
      }
    }
    return accepts;
  }

  Result<Automaton> finish() {
    // Numbers the states that the root reaches.
    std::vector<uint32_t> number(states_.size(), kNone), order, rule_number(rules_.size(), kNone), rule_order;
    const auto reach_rule = [&](uint32_t r) {
      if (rule_number[r] != kNone) return;
      rule_number[r] = static_cast<uint32_t>(rule_order.size());
      rule_order.push_back(r);
    };
    reach_rule(root_);
    std::vector<std::vector<uint32_t>> members;
    for (size_t at = 0; at < rule_order.size(); ++at) {
      std::vector<uint32_t> work = {rules_[rule_order[at]].start};
      members.emplace_back();
      const auto reach = [&](uint32_t s) {
        if (number[s] != kNone) return false;
        number[s] = static_cast<uint32_t>(order.size());
        order.push_back(s);
        members.back().push_back(s);
        return true;
      };
      reach(work[0]);
      while (!work.empty()) {
        const uint32_t s = work.back();
        work.pop_back();
        REDLINE_TRY(deadline_.check());
        for (const Edge& edge : states_[s].edges) {
          if (edge.kind == EdgeKind::kCall) reach_rule(edge.value);
          if (reach(edge.to)) work.push_back(edge.to);
        }
      }
    }
    least_.assign(states_.size(), 0);
    greatest_.assign(states_.size(), 0);

    Automaton a;
    a.matches_empty_ = rules_[root_].is_nullable;
    const Components components = find_components(static_cast<uint32_t>(rule_order.size()), [&](uint32_t i) {
      std::vector<uint32_t> next;
      for (const uint32_t r : first_calls(rule_order[i]))
        if (rule_number[r] != kNone) next.push_back(rule_number[r]);
      return next;
    });
    if (components.count != rule_order.size()) return internal("left recursion was not removed");
    for (size_t i = 0; i < rule_order.size(); ++i) {
      const BuildRule& rule = rules_[rule_order[i]];
      Automaton::Rule& out = a.rules_.emplace_back();
      out = {number[rule.start], components.count - components.of[i], rule.is_counted, rule.least, rule.greatest, 0};
      if (!rule.is_counted) continue;
      REDLINE_TRY(count_ticks(members[i]));
      for (const uint32_t s : members[i]) {
        if (least_[s] != kNone) out.max_distance = std::max(out.max_distance, least_[s]);
        if (greatest_[s] != kNone) out.max_distance = std::max(out.max_distance, greatest_[s]);
      }
    }
    std::array<bool, 257> cuts = {};
    for (const uint32_t s : order) {
      const BuildState& state = states_[s];
      REDLINE_TRY(deadline_.check());
      a.states_.push_back({static_cast<uint32_t>(a.empty_edges_.size()), static_cast<uint32_t>(a.byte_edges_.size()),
                           static_cast<uint32_t>(a.call_edges_.size()), static_cast<uint32_t>(a.token_edges_.size()),
                           rule_number[state.rule], state.accepts, least_[s], greatest_[s]});
      for (const Edge& edge : state.edges) {
        const uint32_t to = number[edge.to];
        switch (edge.kind) {
          case EdgeKind::kEmpty:
          case EdgeKind::kTick: a.empty_edges_.push_back({to, edge.kind == EdgeKind::kTick}); break;
          case EdgeKind::kBytes:
            a.byte_edges_.push_back({edge.lo, edge.hi, to});
            cuts[edge.lo] = cuts[edge.hi + 1U] = true;
            break;
          case EdgeKind::kCall: {
            const bool is_tail = !rules_[state.rule].is_counted && only_ends(edge.to);
            a.call_edges_.push_back({rule_number[edge.value], to, is_tail});
            break;
          }
          case EdgeKind::kToken: a.token_edges_.push_back({static_cast<int32_t>(edge.value), edge.negated, to}); break;
        }
      }
    }
    a.states_.push_back({static_cast<uint32_t>(a.empty_edges_.size()), static_cast<uint32_t>(a.byte_edges_.size()),
                         static_cast<uint32_t>(a.call_edges_.size()), static_cast<uint32_t>(a.token_edges_.size())});
    uint32_t classes = 0;
    for (uint32_t b = 0; b < 256; ++b) {
      if (b > 0 && cuts[b]) ++classes;
      a.byte_classes_[b] = static_cast<uint8_t>(classes);
    }
    a.num_classes_ = classes + 1;
    a.root_ = rule_number[root_];
    return a;
  }

  const Grammar& grammar_;
  const ConstraintLimits& limits_;
  CompileDeadline& deadline_;
  std::vector<bool> maybe_empty_;
  std::vector<uint32_t> cost_;
  std::vector<uint8_t> is_recursive_;
  // Number of states of each rule that does not call itself; UINT32_MAX for the others
  std::vector<uint32_t> inline_cost_;
  bool is_loop_ = false;
  std::vector<BuildState> states_;
  std::vector<BuildRule> rules_;
  std::vector<std::pair<uint32_t, Grammar::Expr>> pending_;
  std::vector<uint32_t> least_, greatest_;
  size_t num_edges_ = 0;
  uint32_t root_ = 0;
};

Result<Automaton> Automaton::compile(const Grammar& grammar, const ConstraintLimits& limits,
                                     CompileDeadline& deadline) {
  return AutomatonBuilder(grammar, limits, deadline).build();
}

}  // namespace redline
