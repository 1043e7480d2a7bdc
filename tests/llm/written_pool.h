// A state pool whose sequences write their tokens into their pages, so that tests can read them back.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "backends/host_memory.h"
#include "llm/state_pool.h"

namespace redline::test {

inline StateAttrs key_values(int64_t heads, int64_t head_dim, int64_t window = 0) {
  StateAttrs a;
  a.num_heads = heads;
  a.head_dim = head_dim;
  a.window = window;
  a.format = KvFormat::kF16;
  return a;
}
inline StateAttrs recurrent(int64_t elements) {
  StateAttrs a;
  a.kind = StateKind::kRecurrent;
  a.elements = elements;
  return a;
}

inline Graph graph_of(const std::vector<StateAttrs>& states) {
  GraphBuilder g("test");
  for (const StateAttrs& a : states) g.state("state", a);
  return std::move(g.finish()).value();
}

/// The recurrent state after one more token.
inline float next(float state, uint8_t token) { return std::fmod(state * 3 + static_cast<float>(token), 1009.0f); }

/// A pool over the states of a graph.
struct WrittenPool {
  Graph graph;
  StatePlan plan;
  StatePool pool;

  WrittenPool(const std::vector<StateAttrs>& states, int64_t pages)
      : graph(graph_of(states)), plan(plan_states(graph, StateStorage::kDevice)),
        pool(plan, counts(plan, pages), make_host_state_memory(plan, counts(plan, pages)).value()) {}
  static std::vector<int64_t> counts(const StatePlan& plan, int64_t pages) {
    return std::vector<int64_t>(plan.groups.size(), pages);
  }
  int64_t used(size_t g) const { return pool.capacity(g) - pool.num_free(g); }
  uint8_t* page(size_t g, int32_t page) { return pool.memory().pages(g) + page * plan.groups[g].page_bytes; }
  /// Appends tokens, each of which writes its id into its place in every key-value group, and adds to the recurrent
  /// state.
  void append(SequenceState& s, const std::vector<uint8_t>& tokens) {
    ASSERT_TRUE(s.reserve(std::ssize(tokens)).ok());
    for (size_t g = 0; g < pool.num_groups(); ++g) {
      if (pool.group(g).kind == StateKind::kRecurrent) {
        const auto* before = reinterpret_cast<const float*>(page(g, s.pages(g)[0]));
        auto* after = reinterpret_cast<float*>(page(g, s.pages(g)[1]));
        after[0] = before[0];
        for (const uint8_t token : tokens) after[0] = next(after[0], token);
        continue;
      }
      for (size_t i = 0; i < tokens.size(); ++i) {
        const int32_t slot = s.slot(g, s.length() + static_cast<int64_t>(i));
        page(g, slot / 32)[slot % 32] = tokens[i];
      }
    }
    s.commit(std::ssize(tokens));
  }
  uint8_t at(SequenceState& s, size_t g, int64_t position) {
    const int32_t slot = s.slot(g, position);
    return page(g, slot / 32)[slot % 32];
  }
};

}  // namespace redline::test
